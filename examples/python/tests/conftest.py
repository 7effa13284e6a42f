import os
import pathlib
from collections.abc import Iterator

import pytest
from qwen36 import Model, Session

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = ROOT / os.environ.get("BUILD", "build/cpu")
DEMO_MODEL = ROOT / "examples/demo-model"
PROMPT = "It was a dark night, and"


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    with Model.load(DEMO_MODEL, threads=2, max_sessions=6) as model:
        yield model


@pytest.fixture
def session(model: Model) -> Iterator[Session]:
    with model.session() as session:
        session.set_sampling(temperature=0)
        yield session


@pytest.fixture
def prompt(model: Model) -> list[int]:
    assert model.tokenizer is not None
    return model.tokenizer.encode(PROMPT)
