"""The rules of the tree hold: who may import whom, what a file must have, what no file may name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("schemas", "operators", "pipelines")  # lowest first: a package imports itself and what stands before it
FOLDERS = (*PACKAGES, "deploy", "tests")

# Who may import a heavy dependency; deploy/ and tests/ may import all. Beam has a rule of its own.
ONLY_UNDER = {
    "vllm": "operators/engines",
    "torch": "operators/engines",
    "transformers": "operators/engines",
    "triton": "operators/engines",
    "kafka": "operators/kafka",
    "confluent_kafka": "operators/kafka",
    "fastavro": "schemas/avro",
}

EMPTY_NAMES = {"utils", "util", "base", "common", "helpers", "helper", "misc"}
EMPTY_CLASS_NAMES = re.compile(r"(Manager|Handler|Helper|Util|Utils)$")

LINE_LIMIT = 300
LONGER: dict[str, int] = {}  # path -> its own limit; each needs a reason in a comment

# A host of a package registry in a file ties the project to it; an installation chooses its own.
# (In parts, so that this file names none either.)
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("download", "pytorch", "org"),
        ("registry", "npmjs", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("conda", "anaconda", "org"),
    )
]
OUTSIDE = re.compile(r"(?<![\w-])(\.\./)?shared/[\w.]")
MAY_NAME_OUTSIDE = {"Makefile", ".ci/run"}
THIS_FILE = "tests/test_layout.py"


def import_faults(path: str, source: str) -> list[str]:
    """What is wrong with the imports of one module; `path` is relative to the root."""
    folder = path.split("/", maxsplit=1)[0]
    tree = ast.parse(source)
    faults = []
    for line, module in _imports(tree):
        top = module.split(".")[0]
        if top in PACKAGES:
            faults.append(f"{path}:{line} imports {module}: the import name is slotstream.{module}")
        if folder not in PACKAGES:
            continue
        if top in ("deploy", "tests"):
            faults.append(f"{path}:{line} imports {module}: a package may not need {top}/")
        if module.startswith("slotstream."):
            package = module.split(".")[1]
            if package in PACKAGES and PACKAGES.index(package) > PACKAGES.index(folder):
                faults.append(f"{path}:{line} imports {module}: {folder} stands below {package}")
        if top in ONLY_UNDER and not path.startswith(ONLY_UNDER[top] + "/"):
            faults.append(f"{path}:{line} imports {module}: only {ONLY_UNDER[top]}/ may")
        if top == "apache_beam" and folder != "pipelines" and not _is_beam_shell(path, tree):
            faults.append(f"{path}:{line} imports {module}: only a file that defines a DoFn or a transform may")
    return faults


def form_faults(path: str, source: str) -> list[str]:
    """What a module lacks or is named wrongly."""
    tree = ast.parse(source)
    faults = []
    pure = PurePosixPath(path)
    faults += [f"{path}: {part!r} says nothing; name it by its role" for part in _words(pure) if part in EMPTY_NAMES]
    lines = source.count("\n") + 1
    if lines > LONGER.get(path, LINE_LIMIT):
        faults.append(f"{path} has {lines} lines, more than {LONGER.get(path, LINE_LIMIT)}: split it by role")
    only_docstring = len(tree.body) <= 1
    if ast.get_docstring(tree) is None and tree.body:
        faults.append(f"{path} has no docstring")
    if pure.parts[0] == "tests":
        return faults
    if not only_docstring:
        exported = _exported(tree)
        if exported is None:
            faults.append(f"{path} has no __all__")
        else:
            faults += [f"{path}: __all__ names {name!r}, which is not there" for name in exported - _defined(tree)]
    if pure.parts[0] in PACKAGES:
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        faults += [
            f"{path}:{c.lineno} class {c.name} says nothing" for c in classes if EMPTY_CLASS_NAMES.search(c.name)
        ]
    return faults


def naming_faults(path: str, text: str) -> list[str]:
    """Names of things outside the project in one text file."""
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        faults += [f"{path}:{number} names the package registry {host}" for host in REGISTRIES if host in line]
        found = OUTSIDE.search(line)
        if found and path not in MAY_NAME_OUTSIDE:
            faults.append(f"{path}:{number} names {found[0]!r}, which only this checkout's surroundings have")
    return faults


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and absolute module name of every import, also those inside functions and under TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module == "slotstream":
                yield from ((node.lineno, f"slotstream.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module


def _is_beam_shell(path: str, tree: ast.Module) -> bool:
    """Whether a file of operators/ defines a class on top of one of Beam's."""
    if not path.startswith("operators/") or path.startswith("operators/engines/"):
        return False
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            for alias in node.names:
                if (module or alias.name).split(".")[0] == "apache_beam":
                    names.add((alias.asname or alias.name).split(".")[0])
    bases = [base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    return any(isinstance(part, ast.Name) and part.id in names for base in bases for part in ast.walk(base))


def _words(path: PurePosixPath) -> list[str]:
    return [*path.parent.parts, path.stem.removeprefix("test_")]


def _exported(tree: ast.Module) -> set[str] | None:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__" and isinstance(node, ast.Assign | ast.AnnAssign):
            assert node.value is not None
            return set(ast.literal_eval(node.value))
    return None


def _defined(tree: ast.Module) -> set[str]:
    """Names bound at the top of a module, also inside its `if` and `try` blocks."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _files(*folders: str) -> list[str]:
    """Every file under the folders, as a path relative to the root."""
    found = [file for folder in folders for file in (ROOT / folder).rglob("*")]
    kept = [file for file in found if file.is_file() and "__pycache__" not in file.parts]
    return sorted(file.relative_to(ROOT).as_posix() for file in kept)


MODULES = [path for path in _files(*FOLDERS) if path.endswith(".py")]
TOP_LEVEL = [path.name for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
TEXTS = [*TOP_LEVEL, *_files(*FOLDERS, ".ci", "requirements", "docs")]


@pytest.mark.parametrize("path", MODULES)
def test_a_module_keeps_the_rules_of_the_tree(path: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    assert import_faults(path, source) + form_faults(path, source) == []


def test_no_file_names_what_lies_outside_the_project() -> None:
    faults = []
    for path in TEXTS:
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text
        if path != THIS_FILE:
            faults += naming_faults(path, text)
    assert faults == []


def test_every_package_of_the_tree_is_installed() -> None:
    import slotstream.operators
    import slotstream.pipelines
    import slotstream.schemas

    for module, folder in zip((slotstream.schemas, slotstream.operators, slotstream.pipelines), PACKAGES, strict=True):
        assert Path(module.__path__[0]).resolve() == ROOT / folder


@pytest.mark.parametrize(
    ("path", "source", "words"),
    [
        ("operators/x.py", "import schemas.label", "slotstream.schemas.label"),
        ("tests/test_x.py", "from operators import plan", "slotstream.operators"),
        ("schemas/x.py", "from slotstream.operators.plan import Plan", "schemas stands below operators"),
        ("schemas/x.py", "from slotstream import operators", "schemas stands below operators"),
        ("operators/x.py", "def f():\n    import slotstream.pipelines.cli", "operators stands below pipelines"),
        ("operators/x.py", "import deploy.local.stack", "may not need deploy/"),
        ("operators/x.py", "import vllm", "only operators/engines/ may"),
        ("pipelines/x.py", "from torch import nn", "only operators/engines/ may"),
        ("operators/x.py", "import kafka.errors", "only operators/kafka/ may"),
        ("schemas/x.py", "import fastavro", "only schemas/avro/ may"),
        ("schemas/x.py", "import apache_beam", "defines a DoFn"),
        ("operators/x.py", "import apache_beam as beam\nclass A:\n    pass", "defines a DoFn"),
        ("operators/engines/x.py", "import apache_beam as beam\nclass A(beam.DoFn):\n    pass", "defines a DoFn"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str, words: str) -> None:
    (fault,) = import_faults(path, source)
    assert words in fault


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("operators/x.py", "import apache_beam as beam\nclass A(beam.DoFn):\n    pass"),
        ("operators/x.py", "from apache_beam.transforms import DoFn\nclass A(DoFn):\n    pass"),
        ("operators/kafka/x.py", "import kafka\nfrom slotstream.schemas.record import Record"),
        ("operators/engines/x.py", "import vllm, torch"),
        ("pipelines/x.py", "import apache_beam\nfrom slotstream.operators import plan"),
        ("schemas/avro/x.py", "import fastavro"),
        ("tests/x.py", "import kafka, vllm, fastavro, apache_beam, deploy.local.stack"),
        ("operators/x.py", "from . import plan"),
    ],
)
def test_an_allowed_import_passes(path: str, source: str) -> None:
    assert import_faults(path, source) == []


@pytest.mark.parametrize(
    ("path", "source", "words"),
    [
        ("operators/utils.py", '"""Doc."""', "'utils' says nothing"),
        ("tests/test_helpers.py", '"""Doc."""', "'helpers' says nothing"),
        ("operators/common/x.py", '"""Doc."""', "'common' says nothing"),
        ("operators/x.py", '__all__ = ["x"]\nx = 1', "no docstring"),
        ("deploy/x.py", '"""Doc."""\nx = 1', "no __all__"),
        ("operators/x.py", '"""Doc."""\n__all__ = ["y"]\nx = 1', "names 'y'"),
        ("operators/x.py", '"""Doc."""\n__all__ = ["PlanManager"]\nclass PlanManager:\n    pass', "PlanManager"),
        ("tests/test_x.py", '"""Doc."""' + "\n" * LINE_LIMIT, "split it by role"),
    ],
)
def test_a_badly_formed_module_is_found(path: str, source: str, words: str) -> None:
    assert any(words in fault for fault in form_faults(path, source))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("README.md", "see ../shared/design.md"),
        ("README.md", "as shared/formats.md says"),
        ("requirements/cpu.txt", f"--index-url https://{REGISTRIES[0]}/simple"),
        ("Makefile", f"# {REGISTRIES[2]}"),
    ],
)
def test_a_name_from_outside_is_found(path: str, text: str) -> None:
    assert len(naming_faults(path, text)) == 1


def test_the_two_files_that_set_things_up_may_name_the_test_data() -> None:
    assert naming_faults("Makefile", "$(wildcard ../shared/data)") == naming_faults(".ci/run", "../shared/data") == []
