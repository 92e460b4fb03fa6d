"""Opens the page of a running `flashwise demo --page` in headless Chromium: the comparison is there, adds up, and fits wide and narrow screens.

Argument: the address that the demo printed. With FLASHWISE_SCREENSHOTS, pictures go there."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

PATIENCE_MS = 30_000


def main():
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        page = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"]).new_page()
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(sys.argv[1])
        comparison = page.get_by_role("region", name="Comparison", exact=True)
        verdict = comparison.locator(".verdict")
        expect(verdict).to_have_text(re.compile(r"The cache avoided [1-9][\d,]* of [\d,]+ disk reads\."))
        rows = comparison.get_by_role("row")
        # One evaluation sees one status.
        texts = comparison.evaluate("part => [...part.querySelectorAll('.verdict, tbody tr')].map(one => one.innerText)")
        number = lambda text: int(text.replace(",", ""))
        avoided, of = map(number, re.search(r"avoided ([\d,]+) of ([\d,]+)", texts[0]).groups())
        with_cache, without = map(number, re.findall(r"[\d,]+", texts[-1]))
        assert without - with_cache == avoided and without == of, texts
        expect(rows).to_have_count(6)
        expect(rows.filter(has_text="Hit ratio")).to_contain_text(re.compile(r"\b0%"))
        for width, scheme in ((1280, "light"), (360, "dark")):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            if pictures := os.environ.get("FLASHWISE_SCREENSHOTS"):
                page.screenshot(path=Path(pictures) / f"comparison-{width}.png", full_page=True)
            violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
            assert not violations, json.dumps([(one["id"], [node["target"] for node in one["nodes"]]) for one in violations])
            scrolled = comparison.locator(".scroll").evaluate("part => part.scrollWidth - part.clientWidth")
            assert scrolled <= 0, f"the table is {scrolled} px too wide at {width}"
            over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert over <= 0, f"{over} px too wide at {width}"
        assert not wrong, wrong


main()
