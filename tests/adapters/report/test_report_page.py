import base64
import hashlib
import re

import pytest

from mlgitops.adapters.report.html import render
from mlgitops.app.reporting import Values, collect
from mlgitops.core import release as releases
from mlgitops.core.manifest.fields import LEDGER
from tests.adapters.report.report_ledger import MODEL, Story, evaluation_report, hand_made_change
from tests.adapters.report.report_page import Page, drawings

SCRIPT = "</bdi><script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>{{ 7*7 }}"
HOSTILE = f"{SCRIPT}\u202etxet\x1b[31m\x00\u200b"
LONG = "W" * 3000


def hostile_story() -> Story:
    """Everything that people or their code may write says what it must not be able to do."""
    story = Story()
    history = [{"epoch": 1, HOSTILE: 0.5, "loss": 1.0}, {"epoch": 2, HOSTILE: 0.4, "loss": 0.5}]
    first = story.candidate(HOSTILE, author=HOSTILE, history=history, image_tag=LONG)
    story.first(first)
    second = story.candidate(LONG, author=LONG)
    rollout = story.start(second.name, by=HOSTILE, forced=HOSTILE)
    story.traffic(rollout, (0.3, 0.3))
    story.back(rollout, by=HOSTILE, reason=HOSTILE)
    report = evaluation_report("k", 0.9, 0.9)
    report["candidate"]["metrics"][HOSTILE] = report["candidate"]["metrics"]["accuracy"]
    report["comparison"]["metrics"][HOSTILE] = report["comparison"]["metrics"]["accuracy"]
    report["candidate"]["slices"][HOSTILE] = {"examples": 3, "metrics": {}}
    report["selfReported"] = {"metrics": {HOSTILE: 1.0, "huge": 10**400}, "error": HOSTILE}
    third = story.trained(f"third {LONG}")
    story.put(lambda ledger: ledger.put_report(MODEL, f"{third.name}-own", report))
    story.move(third, lambda at: releases.Failed(at=at, reason=LONG + HOSTILE, report=f"{third.name}-own"))
    hand_made_change(story)
    return story


def reported(story: Story) -> str:
    return render(collect(story.context(), MODEL, None))


def test_every_release_and_rollout_has_its_part(page: str, values: Values) -> None:
    """Each release and each rollout of the ledger has one part, and every link of the page leads to one."""
    read = Page(page)
    ids = read.values("id")
    assert len(ids) == len(set(ids))
    assert {f"release-{one['release']}" for one in values["releases"]} <= set(ids)
    assert {f"rollout-{one['rollout']}" for one in values["rollouts"]} <= set(ids)
    assert len(values["releases"]) == 11
    assert len(values["rollouts"]) == 9
    assert {link.removeprefix("#") for link in read.values("href") if link.startswith("#")} <= set(ids)
    referred = {one for names in read.values("aria-labelledby") for one in names.split()}
    assert referred <= set(ids)


def test_diary_says_who_and_why(page: str) -> None:
    """The page says of each outcome who decided it and why, in words."""
    text = Page(page).text
    for words in (
        "rolled back by Ada Lovelace <ada@example.org>",
        "users complain about sevens",
        "there is no release 0123456789ab of digits",
        "the evaluation gave no report",
        "training ended Error: ModuleNotFoundError",
        "its data was never ours",
        "the server is mended now",
        "too long",
        "accuracy, at most 0.02 worse than the champion",
        "Failed: the canary is worse",
        "What the words mean",
    ):
        assert words in text


def test_decisions_are_told_with_counts_and_intervals(page: str, values: Values) -> None:
    """Each decision has its counts of both arms, the difference with its interval, and the evidence it rests on."""
    text = Page(page).text
    decisions = [one for rollout in values["rollouts"] for one in rollout["decisions"]]
    assert len(decisions) >= 8
    for one in decisions:
        assert " ".join(one["words"].split()) in text
        for metric in one["metrics"]:
            assert f"{metric['canary']['bad']:,} of {metric['canary']['total']:,}" in text
            assert f"{metric['baseline']['bad']:,} of {metric['baseline']['total']:,}" in text
    assert re.search(r"[+-][\d.]+ points \([+-][\d.]+ to [+-][\d.]+\)", text)


def test_hostile_text_is_shown_as_what_it_is() -> None:
    """Text from repositories can neither add elements or attributes nor hide or turn what is shown."""
    page = reported(hostile_story())
    read = Page(page)
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"script", "img", "iframe", "object", "form", "input", "foreignobject"}
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    assert f"{SCRIPT}⟨U+202E⟩txet" in read.text
    assert "⟨U+001B⟩[31m⟨U+0000⟩⟨U+200B⟩" in read.text
    assert not [one for one in page if not one.isprintable() and one != "\n"]


def test_nothing_is_fetched(page: str) -> None:
    """The page refers to nothing outside itself, and a policy in it forbids scripts and requests."""
    for text in (page, reported(hostile_story())):
        read = Page(text)
        assert not [link for link in read.values("href") if not link.startswith(("#", "data:,"))]
        assert not read.values("src")
        assert not read.values("style")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style
    assert not re.search(r"url\(|@import|@font-face", style[1])
    policy = next(one for one in Page(page).values("content") if one.startswith("default-src 'none'"))
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "script" not in policy


@pytest.mark.parametrize("kind", ["usual", "hostile"])
def test_drawings_are_valid(page: str, kind: str) -> None:
    """Every drawing is well-formed, has finite numbers, and those that say something have title and description."""
    text = reported(hostile_story()) if kind == "hostile" else page
    count = 0
    for drawing in drawings(text):
        for one in drawing.iter():
            for name, value in one.attrib.items():
                if name in {
                    "x",
                    "y",
                    "x1",
                    "x2",
                    "y1",
                    "y2",
                    "cx",
                    "cy",
                    "r",
                    "width",
                    "height",
                    "points",
                    "d",
                    "viewBox",
                }:
                    numbers = [float(found) for found in re.findall(r"-?[\d.]+(?:e[-+]?\d+)?", value)]
                    assert all(abs(number) < 1e5 for number in numbers)
                    assert not re.search("nan|inf|None", value, re.IGNORECASE)
        if drawing.get("role") == "img":
            count += 1
            names = [one.tag for one in drawing]
            assert names[:2] == ["title", "desc"]
            assert drawing[0].text
            assert drawing[1].text
        else:
            assert drawing.get("aria-hidden") == "true"
    assert count >= 5


def test_training_curve_follows_the_history(page: str, values: Values) -> None:
    """The training curve has one point per epoch, and falls where the loss falls."""
    release = values["releases"][0]
    found = next(
        one for one in drawings(page) if one.get("aria-labelledby", "").startswith(f"training-{release['release']}-1-")
    )
    lines = [one for one in found.iter("polyline") if "line" in one.get("class", "")]
    assert len(lines) == 2
    for one in lines:
        points = [tuple(float(part) for part in point.split(",")) for point in one.get("points", "").split()]
        assert len(points) == len(release["training"]["history"])
        assert points == sorted(points)
        assert points[0][1] < points[-1][1]  # downwards is a higher y


def test_traffic_is_drawn_at_its_weights(page: str) -> None:
    """The traffic of a rollout that was rolled back rises by its steps and ends at 0."""
    found = next(one for one in drawings(page) if "rollout-3-course-title" in one.get("aria-labelledby", ""))
    line = next(one for one in found.iter("polyline") if "traffic" in one.get("class", ""))
    heights = [float(point.split(",")[1]) for point in line.get("points", "").split()]
    shares = [round((172 - one) / 1.28) for one in heights]
    assert shares == [0, 0, 10, 10, 50, 50, 0, 0]
    assert any("back" in one.get("class", "") for one in found.iter("path"))
    assert any("limit" in one.get("class", "") for one in found.iter("line"))


def test_late_rollback_by_hand_does_not_flatten_the_rollout() -> None:
    """A rollback days later is told in words, and leaves the drawing to the rollout itself; a near one is drawn."""
    for days, drawn in ((2, False), (0, True)):
        story = Story()
        story.first(story.candidate("one"))
        story.complete(story.passes(story.start(story.candidate("two").name), (0.002, 0.05)))
        story.later(days * 86_400 + 20)
        story.back(story.state.rollouts[2], by="Ada <ada@example.org>", reason="late complaints")
        page = reported(story)
        found = next(one for one in drawings(page) if "rollout-2-course-title" in one.get("aria-labelledby", ""))
        assert any(one.get("class") == "mark back" for one in found.iter("path")) is drawn
        assert ("it was rolled back much later" in page) is not drawn
        assert sum(one.get("class") == "mark passed" for one in found.iter("circle")) == 3


def test_nothing_is_needed() -> None:
    """A model whose first release was only submitted has a page, and so has one whose rollouts left no records."""
    story = Story()
    story.push("first")
    text = Page(reported(story)).text
    assert "Nothing was rolled out here yet" in text
    assert "It was not trained" in text
    story = Story()
    story.first(story.candidate("one"))
    rollout = story.start(story.candidate("two").name)
    for path in [one for one in story.memory.files[LEDGER] if "/reports/" in one]:
        del story.memory.files[LEDGER][path]
    text = Page(reported(story)).text
    assert "No step was decided on" in text
    assert f"rollout {rollout.number}" in text


@pytest.mark.parametrize(
    "history",
    [
        [],
        [{"epoch": 1, "loss": 0.5}],
        [{"loss": 1.0}, {"loss": 1.0}],
        [{"epoch": 1, "loss": 10**400}, {"epoch": 2, "loss": 1e308}, {"epoch": 3, "loss": -1e308}],
        [{"epoch": 1, "loss": float("nan")}, {"epoch": 2, "loss": float("inf")}, {"epoch": 3, "loss": 2.0}],
        [{"epoch": 1e-300, "loss": 1e-300}, {"epoch": 2e-300, "loss": 3e-300}],
        [{"epoch": 10**300, "loss": 1.0}, {"epoch": 1, "loss": 2.0}],
    ],
)
def test_any_history_is_drawn(history: list[dict[str, float]]) -> None:
    """No number that a job may report breaks the page or a drawing."""
    story = Story()
    story.trained("strange", history=history)
    page = reported(story)
    for drawing in drawings(page):
        for one in drawing.iter():
            assert not re.search(r"\b(nan|inf)\b", " ".join(one.attrib.values()))


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_has_contrast(page: str) -> None:
    """Text has a contrast of at least 4.5 and lines of at least 3, in light, dark and print."""
    schemes = [
        dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    ]
    assert len(schemes) == 3
    pairs = [(text, back, 4.5) for text in ("text", "muted", "link") for back in ("page", "surface")]
    pairs += [(tone, f"{tone}-back", 4.5) for tone in ("good", "bad", "open")]
    pairs += [("text", "plain-back", 4.5), ("text", "bad-back", 4.5), ("muted", "bad-back", 4.5), ("bad", "page", 4.5)]
    pairs += [(line, "page", 3) for line in ("s1", "s2", "s3")]
    for scheme in schemes:
        for front, back, least in pairs:
            high, low = sorted((_luminance(scheme[front]), _luminance(scheme[back])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= least, (front, back)
