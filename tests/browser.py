"""A headless Chromium for tests of pages: an installed one, which nothing is downloaded for."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--force-prefers-reduced-motion",
)


def missing() -> str:
    """What there is not: "" where a browser can be driven."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "no selenium"
    found = {"chromium": _browser(), "chromedriver": shutil.which("chromedriver")}
    lacking = [name for name, path in found.items() if path is None]
    return f"no {' and no '.join(lacking)} (Debian: chromium chromium-driver)" if lacking else ""


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def chromium(width: int = 1400, height: int = 1000) -> Iterator[Any]:
    """A driver of a fresh browser that notes what pages log and request."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = _browser() or ""
    with tempfile.TemporaryDirectory(prefix="weft-browser-", ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            yield driver
        finally:
            driver.quit()


def resize(driver: Any, width: int, height: int = 1000) -> None:
    """Give the page a viewport of this size."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(driver: Any, scheme: str) -> None:
    """Let the system prefer "light" or "dark"."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def show(driver: Any, page: Path) -> None:
    driver.get(page.as_uri())


def requested(driver: Any) -> list[str]:
    """The addresses that pages of files asked for since the last time."""
    messages = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [p["request"]["url"] for p in sent if p["documentURL"].startswith("file:")]


def logged(driver: Any) -> list[str]:
    """What pages logged since the last time, errors and warnings."""
    return [entry["message"] for entry in driver.get_log("browser")]
