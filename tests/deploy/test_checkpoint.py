"""The shipped checkpoint as an artefact, and the code that trained it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from deploy.checkpoint import student
from deploy.checkpoint.layout import CANVAS, apart, assemble, layouts
from slotstream.operators.card import read_card, style_for
from slotstream.operators.engines.capability import model_facts
from slotstream.operators.engines.config import PACKAGED_CHECKPOINT, EngineConfig
from slotstream.operators.plan import compile_plan
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import load_decision_schema, parse_decision_schema
from slotstream.schemas.errors import EngineNotCapable

MODEL = str(PACKAGED_CHECKPOINT)
TICKETS = load_decision_schema(Path(__file__).parents[2] / "deploy" / "demo" / "tickets.yaml")
SMALL = {"hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32}


@pytest.fixture(scope="module")
def tokenizer() -> PlanTokenizer:
    return PlanTokenizer.from_model(MODEL)


@pytest.fixture(scope="module")
def model() -> Any:
    """Random weights, with norms that are not one: a norm left out would show."""
    torch.manual_seed(0)
    model = student.build(400, CANVAS, 8, **SMALL)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
        model.model.decoder.norm.weight.fill_(3.0)
    return model.eval()


def test_the_checkpoint_is_small() -> None:
    assert sum(file.stat().st_size for file in PACKAGED_CHECKPOINT.iterdir()) < 9_000_000


def test_its_card_knows_the_demos_schema_joint_and_apart() -> None:
    assert style_for(TICKETS, MODEL) == "compact"
    assert style_for(apart(TICKETS), MODEL) == "compact"


def test_other_thresholds_are_the_same_questions() -> None:
    data = TICKETS.model_copy(update={"mass_floor": 0.2})
    assert style_for(data, MODEL) == "compact"


def test_another_question_is_refused() -> None:
    other = parse_decision_schema({"mood": {"type": "noul", "instructions": "Angry?"}}, name="tickets")
    with pytest.raises(EngineNotCapable, match="trained"):
        style_for(other, MODEL)


def test_its_card_names_every_source_with_a_licence() -> None:
    card, readme = read_card(MODEL), (PACKAGED_CHECKPOINT / "README.md").read_text(encoding="utf-8")
    assert card is not None
    for name in ("BANKING77", "CC-BY-4.0", "PolyAI", "MiniLM", "Apache-2.0"):
        assert name in readme
    assert all(plan in readme for plan in card.plan_hashes)


def test_an_engine_takes_it_with_one_canvas_for_all_questions(tokenizer: PlanTokenizer) -> None:
    facts = model_facts(EngineConfig())
    plan = compile_plan(
        TICKETS,
        tokenizer,
        style="compact",
        max_model_len=facts.max_model_len,
        canvas_length=facts.canvas_length,
        vocab_size=facts.vocab_size,
    )
    assert len(plan.canvases) == 1
    assert facts.vocab_size == tokenizer.vocab_size
    assert facts.canvas_length == CANVAS


@given(st.text())
def test_its_tokenizer_loses_no_text(text: str) -> None:
    tokenizer = Tokenizer.from_file(str(PACKAGED_CHECKPOINT / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_255_options_have_marks_in_it(tokenizer: PlanTokenizer) -> None:
    question = {"type": "choice", "criteria": [f"option {n}" for n in range(255)]}
    schema = parse_decision_schema({"q": question}, name="wide")
    compile_plan(
        schema, tokenizer, style="full", max_model_len=4096, canvas_length=CANVAS, vocab_size=tokenizer.vocab_size
    )


def test_the_packed_pass_of_training_is_the_models_own(model: Any) -> None:
    torch.manual_seed(1)
    prefix, canvas, slots = torch.randint(10, 400, (7,)), torch.randint(10, 400, (3, CANVAS)), [1, 4, 9]
    prompts = [torch.randint(10, 400, (length,)) for length in (12, 5, 1)]
    tokens = torch.zeros(3, 12 + CANVAS, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    tokens[:, 12:] = canvas
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    with torch.no_grad():
        packed = student.unembed(
            model, student.read_slots(model, prefix, tokens, lengths, width=CANVAS, slots=slots)
        ).log_softmax(-1)
        for row, prompt in enumerate(prompts):
            own = model(input_ids=torch.cat((prefix, prompt))[None], decoder_input_ids=canvas[row][None])
            assert torch.allclose(packed[row], own.logits[0, slots].log_softmax(-1), atol=2e-4)


def test_training_sees_the_token_ids_of_a_read(tokenizer: PlanTokenizer) -> None:
    plan = compile_plan(
        TICKETS, tokenizer, style="compact", max_model_len=256, canvas_length=CANVAS, vocab_size=tokenizer.vocab_size
    )
    (layout,) = layouts(TICKETS, tokenizer, "cpu")
    text = "Where is my card? <turn|>"
    (request,) = plan.reads(text).requests
    ids = torch.tensor([[*tokenizer.encode(text), 0, 0]])
    tokens, lengths = assemble(layout, ids, torch.tensor([ids.shape[1] - 2]), tokenizer.vocab_size)
    prompt = [*layout.prefix.tolist(), *tokens[0, : int(lengths)].tolist()]
    canvas = [-1 if at in layout.slots else token for at, token in enumerate(tokens[0, -CANVAS:].tolist())]
    assert prompt == list(request.prompt_ids)
    assert canvas == [-1 if at in request.slots else token for at, token in enumerate(request.canvas_ids)]
    assert [tuple(marks.tolist()) for marks in layout.marks] == list(request.mark_ids)


def test_a_saved_model_is_read_back_the_same(model: Any, tmp_path: Path) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    student.save(model, tmp_path, torch.float32)
    after = student.load(tmp_path).state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
