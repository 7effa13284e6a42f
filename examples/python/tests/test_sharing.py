"""What sessions share: known prefixes, forks; and the statistics that tell."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import qwen36
from conftest import DEMO_MODEL
from qwen36 import Logits, Model, Session, Stats, Status, sample, step

TOKENS = [7 * i % 400 for i in range(200)]


def finish(*sessions: Session) -> None:
    while any(status == Status.PENDING for status in step(sessions)):
        pass


def test_statistics_add_up() -> None:
    with Model.load(DEMO_MODEL, threads=1) as model, model.session() as first, model.session() as second:
        assert model.stats() == dataclasses.replace(model.stats(), steps=0, kv_bytes=0, state_bytes=0, sessions=2)
        first.append(TOKENS)
        second.append(TOKENS[::-1])
        finish(first, second)
        sample([first, second])
        all_, parts = model.stats(), (first.stats(), second.stats())
        assert all_.computed_tokens == sum(part.computed_tokens for part in parts) == 400
        assert all_.sampled_tokens == 2 and all_.reused_tokens == 0
        assert all_.held_blocks == sum(part.held_blocks for part in parts) == 8
        assert 0 < all_.held_blocks <= all_.blocks == model.info.kv_blocks
        assert all_.snapshots > 0 and all_.snapshot_room == model.info.snapshots
        assert all_.state_bytes % model.info.state_bytes == 0 and all_.kv_bytes > 0
        assert min(all_.schedule_seconds, all_.compute_seconds, all_.commit_seconds, all_.sample_seconds) > 0
        assert isinstance(first.stats(), Stats) and first.stats().compute_seconds == 0


def test_a_prefix_is_reused_within_its_space() -> None:
    with Model.load(DEMO_MODEL, threads=1, max_sessions=5) as model:
        with model.session(prefix_space=7) as first:
            first.append(TOKENS)
            finish(first)
        with model.session(prefix_space=7) as second, model.session(prefix_space=8) as stranger:
            assert second.sync(TOKENS) == 192 == second.stats().reused_tokens
            assert stranger.sync(TOKENS) == 0
        assert model.stats().cached_blocks == 3
        model.clear_cache()
        assert model.stats().cached_blocks == model.stats().snapshots == 0
        with model.session(prefix_space=7) as third:
            assert third.sync(TOKENS) == 0


def test_options_of_the_cache() -> None:
    with Model.load(DEMO_MODEL, threads=1, prefix_reuse=0) as model:
        assert model.info.snapshots == model.stats().snapshot_room == 0
    bytes_ = model.info.state_bytes
    with Model.load(DEMO_MODEL, threads=1, snapshot_bytes=3 * bytes_) as model:
        assert model.info.snapshots == 3
    with Model.load(DEMO_MODEL, threads=1, memory_share=0.01) as model:
        assert model.info.kv_blocks > 0
    with pytest.raises(qwen36.InvalidArgument, match="memory_share"):
        Model.load(DEMO_MODEL, memory_share=2)


def test_a_fork_goes_its_own_way(model: Model) -> None:
    with model.session() as session:
        session.set_sampling(temperature=0)
        session.append(TOKENS[:100])
        finish(session)
        fork = session.fork()
        assert fork.tokens() == session.tokens() and fork.computed == 100
        assert fork.sampling == session.sampling and fork.capacity == session.capacity
        assert np.array_equal(fork.logits(), session.logits())
        assert fork.stats().held_blocks == 2 and fork.stats().computed_tokens == 0
        fork.append([5])
        finish(fork)
        assert fork.stats().copied_blocks == 1 and len(session) == 100
        assert sample([session]) == [int(np.argmax(session.logits()))]
    assert "".join(fork.generate(3)) is not None and len(fork) >= 102  # works on without its twin
    fork.close()


def test_a_fork_keeps_the_callback_or_gets_another(model: Model) -> None:
    rows: list[int] = []
    others: list[int] = []
    with model.session(on_logits=lambda position, row: rows.append(position)) as session:
        session.append([1, 2])
        with session.fork() as fork, session.fork(on_logits=lambda position, row: others.append(position),
                                                  context_length=10) as other:
            assert other.capacity == 10
            for each in (fork, other):
                each.append([3], Logits.ALL)
                finish(each)
        assert (rows, others) == ([2], [2])
        with pytest.raises(qwen36.ContextFull):
            session.fork(context_length=1)


def test_a_session_is_saved_and_restored(tmp_path: Path) -> None:
    with Model.load(DEMO_MODEL, threads=1) as model, Model.load(DEMO_MODEL, threads=1) as other:
        session = model.session()
        session.append(TOKENS[:100])
        finish(session)
        session.set_sampling(temperature=0.7, seed=5)
        saved = session.save_bytes()
        session.save(tmp_path / "session.qw36")
        assert (tmp_path / "session.qw36").read_bytes() == saved
        restored = [other.restore(tmp_path / "session.qw36"), other.restore(saved)]
        expected = sample([session])
        for again in restored:
            assert again.tokens() == TOKENS[:100] and again.sampling == dataclasses.replace(session.sampling)
            assert np.array_equal(again.logits(), session.logits())
            assert sample([again]) == expected
        with pytest.raises(qwen36.InvalidSnapshot):
            other.restore(saved[:-1])
        with pytest.raises(FileNotFoundError):
            other.restore(tmp_path / "nothing")
        with pytest.raises(qwen36.FileNotWritten):
            session.save(tmp_path / "nothing" / "x")


def test_prefixes_outlive_the_model(tmp_path: Path) -> None:
    reused = []
    for _ in range(2):
        with Model.load(DEMO_MODEL, threads=1, prefix_directory=tmp_path) as model, model.session() as session:
            reused.append(session.sync(TOKENS))
            finish(session)
            model.flush_prefixes()
            assert model.stats().disk_writes == (0 if reused[0] != reused[-1] else len(list(tmp_path.iterdir())))
    assert reused == [0, 192]
