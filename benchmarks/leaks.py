"""Print how much the rewriter catches and how often it stops harmless words: ``python benchmarks/leaks.py``.

Two halves with templates and seeds of their own: the open one may be tuned against, the held-out one may not.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import leak_held
import leak_open
import leak_opened
from leak_tools import Leak, Topic, World

from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.judge.fingerprints import HiddenFingerprints
from pytest_uniclaw.judge.firewall import fingerprints_of
from pytest_uniclaw.judge.folding import fold
from pytest_uniclaw.judge.numbers import numbers_in
from pytest_uniclaw.judge.rewriter import rewrite
from pytest_uniclaw.package import HiddenFolder, Reader, open_hidden
from pytest_uniclaw.settings import environment_value
from pytest_uniclaw.task import load_task

PARAPHRASE = "paraphrase"
"""The kind that no fingerprint finds; it is reported, and counts in no target."""
RECALL, FALSE_POSITIVES = 0.97, 0.02
"""Targets on the held-out half."""
INDEX_SECONDS = 0.5
"""CPU time for the fingerprints of 200,000 characters of hidden text."""
LINES = 4
"""Harmless messages for each real task."""


@dataclass
class Tally:
    """Counts of one half."""

    caught: Counter[str] = field(default_factory=Counter)
    leaks: Counter[str] = field(default_factory=Counter)
    stopped: int = 0
    harmless: int = 0
    missed: list[Leak] = field(default_factory=list)
    wronged: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    @property
    def recall(self) -> float:
        """Caught share of all leaks but paraphrases."""
        kinds = [kind for kind in self.leaks if kind != PARAPHRASE]
        return sum(self.caught[kind] for kind in kinds) / sum(self.leaks[kind] for kind in kinds)

    @property
    def false_positives(self) -> float:
        """Share of the harmless messages that were changed."""
        return self.stopped / self.harmless


def open_half() -> Iterator[World]:
    """Yield the worlds that the rewriter may be tuned against."""
    yield from leak_open.worlds()
    yield from leak_opened.worlds()


def synthetic(worlds: Iterable[World]) -> Iterator[tuple[World, HiddenFingerprints]]:
    """Yield worlds with their fingerprints."""
    for world in worlds:
        hidden = HiddenFingerprints.build(world.hidden, world.public)
        yield world, hidden.protecting(world.secrets, world.public)


def measure(worlds: Iterable[tuple[World, HiddenFingerprints]]) -> Tally:
    """Put every candidate of every world through the rewriter."""
    tally = Tally()
    for world, hidden in worlds:
        for leak in world.leaks:
            joint = "" if world.language == "zh" else " "
            tally.leaks[leak.kind] += 1
            if _passes(leak.sentence, f"{leak.opening}{joint}{leak.sentence}", world, hidden):
                tally.missed.append(leak)
            else:
                tally.caught[leak.kind] += 1
        for text in world.harmless:
            done = rewrite(text, hidden=hidden, public=world.public, language=world.language, history=())
            tally.harmless += 1
            if _bare(done.message) != _bare(text):
                tally.stopped += 1
                tally.wronged.append((text, done.decisions))
    return tally


def _passes(sentence: str, candidate: str, world: World, hidden: HiddenFingerprints) -> bool:
    """Say whether any part of a leaking sentence is in the message that is sent."""
    done = rewrite(candidate, hidden=hidden, public=world.public, language=world.language, history=())
    return _bare(sentence)[-12:] in _bare(done.message) or _bare(sentence)[:12] in _bare(done.message)


def _bare(text: str) -> str:
    return "".join(fold(text).split())


def report(title: str, tally: Tally, seconds: float) -> None:
    """Print one half."""
    print(f"{title}: {sum(tally.leaks.values())} leaks, {tally.harmless} harmless, {seconds:.1f} CPU s")
    for kind in sorted(tally.leaks, key=lambda kind: (kind == PARAPHRASE, kind)):
        note = "  not counted" if kind == PARAPHRASE else ""
        print(f"  {kind:18} {tally.caught[kind]:4} of {tally.leaks[kind]:4}{note}")
    print(f"  recall without paraphrase  {tally.recall:.3f}  target {RECALL}")
    print(f"  false positives            {tally.false_positives:.3f}  target {FALSE_POSITIVES}")


def real_worlds(root: Path, topics: Sequence[Topic], seed: int) -> Iterator[tuple[World, HiddenFingerprints]]:
    """Yield the tasks below ``root`` with leaks cut from their own hidden files and harmless lines of other topics.

    The topics' public requests count as public, too, and lines with figures are left out: what those say is a user's
    own in its own task only.
    """
    lines = {
        language: [line for t in topics if t.language == language for line in t.harmless if not _has_figures(line)]
        for language in ("en", "zh")
    }
    elsewhere = "\n".join(topic.public for topic in topics)
    for number, path in enumerate(sorted([*root.glob("tasks/*/*.yaml"), *root.glob("suites/*/*.yaml")])):
        try:
            task = load_task(path, check_assets=False)
            references = open_hidden(task, HiddenFolder.REFERENCES, Reader.SUPERVISOR)
        except TaskError:
            continue
        known = lines[task.language]
        harmless = tuple(known[(LINES * number + n) % len(known)] for n in range(LINES))
        text = (references / "eval_rule.md").read_text("utf-8", "replace")
        leaks = tuple(_cut(random.Random(f"real:{seed}:{task.task_id}"), text, task.prompt))
        public = f"{task.prompt}\n{elsewhere}"
        yield World(task.language, public, (), (), leaks, harmless), fingerprints_of(task)


def _has_figures(line: str) -> bool:
    return any(float(number) > 12 for number in numbers_in(fold(line)))


def _cut(rng: random.Random, rubric: str, public: str) -> Iterator[Leak]:
    """Yield candidates that copy a sentence, a long number and an identifier of a rubric."""
    sentences = [line for line in re.findall(r"[^.!?\n|#`*]{50,160}(?=[.!?])", rubric) if len(line.split()) >= 9]
    numbers = [n for n in re.findall(r"(?<![\w.,-])\d{5,7}(?![\w.,])", rubric) if n not in public]
    names = [n for n in re.findall(r"(?<![\w/.-])[a-z]+_[a-z]+_[a-z_]+(?![\w/.-])", rubric) if n not in public]
    frames = {"passage": (sentences, "{}."), "number": (numbers, "Is it {}?"), "identifier": (names, "See {}.")}
    for kind, (found, frame) in frames.items():
        if found:
            yield Leak(kind, "en", "Thanks.", frame.format(rng.choice(found).strip()))


def long_rubric(characters: int) -> str:
    """Return hidden text of a length: the hidden files of the open half, over and over, with other figures."""
    pieces, total, seed = list[str](), 0, 100
    while total < characters:
        for world in leak_open.worlds(seed):
            pieces += world.hidden
            total += sum(map(len, world.hidden))
        seed += 1
    return "\n".join(pieces)[:characters]


def report_indexing() -> None:
    """Print what the fingerprints of a long hidden text cost."""
    text, seconds = long_rubric(200_000), list[float]()
    for _ in range(5):
        began = time.process_time()
        HiddenFingerprints.build([text], "")
        seconds.append(time.process_time() - began)
    print(f"fingerprints of 200,000 characters  {min(seconds):.2f} CPU s  target {INDEX_SECONDS}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a target of the held-out half is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", action="store_true", help="measure the open half only, and show what went wrong")
    options = parser.parse_args(arguments)
    opened = _timed("open half", synthetic(open_half()))
    if options.open:
        for leak in opened.missed:
            print("MISSED ", leak.kind, leak.language, leak.sentence)
        for text, decisions in opened.wronged:
            print("STOPPED", decisions, text)
        return 0
    held = _timed("held-out half", synthetic(leak_held.worlds()))
    report_indexing()
    topics = tuple(leak_held.TOPICS.values())
    _timed("suites of this repository", real_worlds(Path(__file__).parents[1], topics, 1))
    upstream = environment_value("UNICLAW_UPSTREAM")
    if upstream:
        _timed("upstream's tasks", real_worlds(Path(upstream), topics, 1))
    else:
        print("NOT RUN: upstream's tasks; UNICLAW_UPSTREAM names no checkout")
    return 0 if held.recall >= RECALL and held.false_positives <= FALSE_POSITIVES else 1


def _timed(title: str, worlds: Iterable[tuple[World, HiddenFingerprints]]) -> Tally:
    began = time.process_time()
    tally = measure(worlds)
    report(title, tally, time.process_time() - began)
    return tally


if __name__ == "__main__":
    sys.exit(main())
