import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mlgitops.adapters.report.html import render
from mlgitops.app.reporting import collect
from tests.adapters.report.report_ledger import MODEL
from tests.adapters.report.test_report_page import hostile_story

WIDTHS = (390, 1400)
HARNESS = """<!doctype html><body style="margin:0">
%s
<script>
addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const inner = frame.contentDocument, width = frame.clientWidth;
    const outside = [...inner.querySelectorAll("body *")].filter((one) =>
      one.getBoundingClientRect().right > width + 1 && !one.closest(".scroll, .skip"));
    const sizes = [...inner.querySelectorAll("svg.plot")].filter((one) => one.clientWidth).map((one) =>
      parseFloat(frame.contentWindow.getComputedStyle(one.querySelector("text")).fontSize) * one.clientWidth / 640);
    return {
      width, scroll: inner.documentElement.scrollWidth,
      outside: outside.slice(0, 5).map((one) => one.outerHTML.slice(0, 200)),
      smallest: Math.min(...sizes), drawings: sizes.length,
    };
  });
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
});
</script>"""
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--virtual-time-budget=10000", "--dump-dom",
)  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("chromium is not installed")
    return found


@pytest.mark.parametrize("kind", ["usual", "hostile"])
def test_page_fits_its_window(chromium: str, page: str, tmp_path: Path, kind: str) -> None:
    """In windows of 390 and 1400 pixels nothing reaches beyond the right edge, and letters in drawings can be read."""
    if kind == "hostile":
        page = render(collect(hostile_story().context(), MODEL, None))
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0;display:block" srcdoc="{html.escape(page)}"></iframe>'
        for width in WIDTHS
    )
    harness = tmp_path / "harness.html"
    harness.write_text(HARNESS % frames)
    command = [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1500,2000", harness.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result
    for one in json.loads(html.unescape(result[1])):
        assert one["scroll"] <= one["width"], one
        assert not one["outside"]
        assert one["drawings"] >= 5
        assert one["smallest"] >= 10, one
    assert len(json.loads(html.unescape(result[1]))) == len(WIDTHS)
