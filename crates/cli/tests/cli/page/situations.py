"""The page in situations that a small server does not come to by itself: what the server sends is altered on its way to the page."""

import os
import re
import signal

from playwright.sync_api import expect

# Alters each status before the page has it: `change` of the situation is given and returns a status.
ALTER = """
const add = EventSource.prototype.addEventListener;
EventSource.prototype.addEventListener = function (name, act, ...rest) {
  const altered = event => act({ data: JSON.stringify((%s)(JSON.parse(event.data))) });
  return add.call(this, name, name === "status" ? altered : act, ...rest);
};
"""

DETACHING = """status => ({ ...status, volumes: status.volumes.map(volume =>
  volume.name === "two" ? { ...volume, flash: "two.cache", state: "detaching", state_reason: null } : { ...volume, state: "ok", state_reason: null }) })"""

# The rated volume is a day old and writes more than it is rated for, another one writes much more and is not rated.
WORN = """status => ({ ...status, volumes: status.volumes.map(volume => ({ ...volume, uptime_seconds: 90000, state: "ok", state_reason: null,
  drive_writes_per_day: volume.name === "tank" ? 1.5 : 80, lifetime_years_rated: volume.name === "tank" ? 0.4 : null })) })"""

MANY = """status => ({ ...status, volumes: [...Array(200).keys()].map(at => ({ ...status.volumes[0], name: `vm-${at}`,
  state: at === 77 ? "flash-failed" : "ok", state_reason: at === 77 ? "Input/output error" : null })) })"""

# The flash of one failed, and that of tank fails now and then.
DEGRADED = """status => ({ ...status, volumes: status.volumes.map(volume =>
  volume.name === "one" ? { ...volume, flash: "one.cache", state: "flash-failed", state_reason: "flash: write: Input/output error" } :
  volume.name === "tank" ? { ...volume, faults: { ...volume.faults, flash_read_errors: 30, flash_checksum_errors: 24 } } :
  { ...volume, state: "ok", state_reason: null }) })"""

# tank has a budget of its own, which is half of what its flash is rated for.
BUDGET = """status => ({ ...status, volumes: status.volumes.map(volume => volume.name !== "tank" ? volume :
  { ...volume, write_budget: { source: "flashwise", bytes_per_day: volume.flash_bytes / 2, today_bytes: 0, today_used: 0.25, life_days: 2, life_bytes: 0, life_used: 0.2 } }) })"""

# Without its flash, the backend of one is older than it may be, and that of two is no state of it.
BEHIND = """status => ({ ...status, volumes: status.volumes.map(volume => ({ ...volume, flash: `${volume.name}.cache`, state: "ok", state_reason: null,
  backend_state: volume.name === "one" ? { is_consistent: true, consistent_seconds: 1796047400, age_seconds: 960, age_seconds_max: 900, newer_blocks: 1204 } :
    volume.name === "two" ? { is_consistent: false, consistent_seconds: null, age_seconds: null, age_seconds_max: 900, newer_blocks: 7 } : null })) })"""

MIB = 1 << 20
DAY = 86400


def estimate(policy, mib, ratio, present=False):
    return {"policy": policy, "capacity_bytes": mib * MIB, "is_present": present, "read_hit_ratio": ratio, "flash_bytes_written": MIB}


WHAT_IF = {
    "sampled_share": 0.1,
    "accesses": 90000,
    "sampled_accesses": 9000,
    "dropped_accesses": 0,
    "estimates": [estimate("larc", 5, 0.848), estimate("larc", 10, 0.85, True), estimate("larc", 20, 0.8501), estimate("lru", 10, 0.70), estimate("arc", 10, 0.89)],
}


def situation(browser, cookie, base, alter, width=1280, scheme="light"):
    """A page that sees an altered server."""
    page = browser.page(width, 800, scheme)
    page.context.add_cookies([{**cookie, "url": base}])
    if alter:
        page.add_init_script(ALTER % alter)
    return page


def half_detached(page):
    """The flash of two is being detached."""
    progress = {"state": "detaching", "dirty_blocks": 17664, "destaged_blocks": 10496, "remaining_seconds": 214}
    page.route("**/v1/volumes/two/detach", lambda route: route.fulfill(json=progress))


def take_pictures(browser, base, cookie, views, check):
    """Every view in four situations, at two widths and in both schemes."""
    situations = {"healthy": None, "degraded": DEGRADED, "detaching": DETACHING, "many": MANY}
    for name, alter in situations.items():
        for width, scheme in ((1440, "light"), (1440, "dark"), (360, "light"), (360, "dark")):
            page = situation(browser, cookie(), base, alter, width=width, scheme=scheme)
            half_detached(page)
            for view, path in views.items():
                page.goto(f"{base}/{path.replace('volume/tank', 'volume/two') if alter is DETACHING else path}")
                expect(page.get_by_role("heading", level=2).first).to_be_visible()
                expect(page.get_by_text("Loading.")).to_have_count(0)
                check(page, f"{view}-{name}-{width}-{scheme}")
            page.context.close()


def see_detaching(page, base, check):
    """Planned work is blue and shows how far it is; nothing is an alarm."""
    half_detached(page)
    page.route("**/v1/pools", lambda route: route.fulfill(json=[]))
    page.goto(f"{base}/#/overview")
    expect(page.locator(".health.planned")).to_contain_text("1 planned task")
    expect(page.get_by_role("alert")).to_have_count(0)
    card = page.get_by_role("article", name="two")
    expect(card.locator(".state")).to_have_class("state planned")
    expect(card.get_by_role("status")).to_contain_text(re.compile(r"41\sMiB of 110\sMiB, about 3\.57\smin left"))
    assert card.get_by_role("progressbar").evaluate("bar => bar.value / bar.max") == 10496 / 28160
    check(page, "detaching")
    colour = "element => getComputedStyle(element).color"
    assert card.locator(".state").evaluate(colour) != page.get_by_role("article", name="one").locator(".state").evaluate(colour)
    page.goto(f"{base}/#/volume/two")
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def see_degraded(page, base, check):
    """Faults are red and say what to do; a flash with errors is a warning before it fails."""
    page.route("**/v1/pools", lambda route: route.fulfill(json=[]))
    page.goto(f"{base}/#/overview")
    health = page.get_by_role("alert")
    expect(health).to_contain_text("1 fault, 1 warning")
    failed = "one: flash failed, flash: write: Input/output error. Writes are refused: detach the flash to go on without it."
    expect(health.locator("li")).to_have_text([failed, "tank: 54 transfers of the flash failed since the start. Detach the flash while it is readable."])
    expect(page.get_by_role("article").first).to_have_attribute("aria-label", "one")
    expect(page.get_by_role("article", name="one").locator(".state")).to_have_class("state bad")
    check(page, "degraded")
    page.goto(f"{base}/#/volume/one")
    expect(page.get_by_role("alert")).to_contain_text(failed)
    expect(page.get_by_role("button", name="Detach the flash")).to_be_enabled()


def see_wear(page, base):
    """Flash writes are compared with the rating of their own volume, and with no other."""
    page.route("**/v1/pools", lambda route: route.fulfill(json=[]))
    page.goto(f"{base}/#/overview")
    expect(page.locator(".health.warning")).to_contain_text("1 warning")
    expect(page.locator(".health li")).to_have_text("tank writes its flash 1.5 times a day; it is rated for 1.")
    lifetime = lambda name: page.get_by_role("article", name=name).locator("dl > div").last
    expect(lifetime("tank")).to_have_text("Flash lifetime0.4 years1.5 of 1 writes/day")
    expect(lifetime("old")).to_have_text("Flash lifetimeno flashcache in RAM only")


def see_behind(page, base, check):
    """A backend that is too old without its flash is a warning, and so is one that is no state of the volume."""
    page.route("**/v1/pools", lambda route: route.fulfill(json=[]))
    page.goto(f"{base}/#/overview")
    moment = page.evaluate("async () => (await import('/page/numbers.mjs')).clock(1796047400)")
    late = f"one: without its flash, the backend is consistent as of {moment}, 16\u00a0min ago; dirty-age allows 15\u00a0min."
    mixed = "two: without its flash, the backend is a mixture of old and new blocks until earlier dirty blocks are written back."
    expect(page.locator(".health li")).to_have_text([late, mixed])
    page.goto(f"{base}/#/volume/one")
    fact = page.locator(".facts > div").filter(has=page.get_by_text("Backend state", exact=True))
    expect(fact).to_have_text(f"Backend stateconsistent as of {moment} (16\u00a0min ago); 1,204 newer blocks")
    check(page, "behind")
    page.goto(f"{base}/#/volume/tank")
    expect(page.get_by_role("heading", level=2).first).to_be_visible()
    expect(fact).to_have_count(0)


def see_many(page, base, check):
    """200 volumes fit: few entries in the navigation, the worst cards, and a list that is filtered."""
    page.goto(f"{base}/#/overview")
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(6)
    cards = page.get_by_role("article")
    expect(cards).to_have_count(12)
    expect(cards.first).to_have_attribute("aria-label", "vm-77")
    expect(page.get_by_role("alert")).to_contain_text("vm-77: flash failed, Input/output error.")
    check(page, "many")
    page.get_by_role("link", name="All 200 volumes").click()
    rows = page.get_by_role("table", name="Volumes").locator("tbody tr")
    expect(rows).to_have_count(200)
    page.get_by_label("Find volumes").fill("failed")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("vm-77")
    page.get_by_label("Find volumes").fill("vm-19")
    expect(rows).to_have_count(11)


def see_stale(page, base, pid):
    """A server that is stopped does not look alive."""
    page.goto(f"{base}/#/overview")
    expect(page.locator(".health")).to_be_visible()
    stale = page.locator(".stale")
    expect(stale).to_have_count(0)
    os.kill(pid, signal.SIGSTOP)
    try:
        expect(stale).to_have_text(re.compile(r"These figures are ([5-9]|\d\d)[\d.]*\ss old"))
    finally:
        os.kill(pid, signal.SIGCONT)
    expect(stale).to_have_count(0)


def see_what_if(page, base):
    """The conclusion comes first; the table is folded and sorted by effect."""
    page.route("**/v1/volumes/tank/what-if", lambda route: route.fulfill(json=WHAT_IF))
    page.goto(f"{base}/#/volume/tank")
    says = "A larger flash would not help; half of it costs only 0.2 points. arc would gain 4 points over larc."
    expect(page.locator(".verdict")).to_have_text(says)
    rows = page.locator("details", has_text="All 5 policies and sizes").locator("tbody tr")
    expect(rows.first).not_to_be_visible()
    page.get_by_text("All 5 policies and sizes").click()
    policies = [row.split()[0] for row in rows.all_inner_texts()]
    assert policies == ["arc", "larc", "larc", "larc", "lru"], policies
    expect(rows.nth(0)).to_contain_text("+4 points")
    expect(rows.nth(4)).to_contain_text("\u221215 points")
    page.goto(f"{base}/#/overview")
    expect(page.get_by_role("article", name="tank").locator(".advice")).to_contain_text(says)


def see_charts(page, base):
    """Lines without dots, with values in their legends, and ticks at round values."""
    page.goto(f"{base}/#/volume/tank")
    chart = lambda title: page.locator("figure.chart").filter(has=page.get_by_text(title, exact=True))
    expect(chart("Throughput").locator(".legend")).to_have_text(re.compile(r"read [\d.]+\s.*B/s.*written [\d.]+\s.*B/s.*written to flash [\d.]+\s.*B/s"))
    expect(chart("Latency").locator(".legend")).to_have_text(re.compile(r"median .*p99 "))
    expect(chart("Drive writes per day").locator(".legend")).to_have_text(re.compile(r"rated 1$"))
    ticks = page.evaluate(
        """async () => {
          const { linearTicks, logTicks, thinned } = await import("/page/ticks.mjs");
          const points = [...Array(900).keys()].map(at => ({ time_seconds: at, latency_p99_us: at % 9, dirty_bytes: 8 }));
          const few = thinned(points, 100);
          const { lonely } = await import("/page/charts.mjs");
          return [linearTicks(5e6, true), linearTicks(83, false), linearTicks(0, true), logTicks(7, 27500), few.length, few.at(-1), lonely([1, 2, 3, null, 5, null])];
        }"""
    )
    assert ticks[0] == [0, 2 * MIB, 4 * MIB, 6 * MIB], ticks
    assert ticks[1] == [0, 50, 100] and ticks[2] == [0, 1024], ticks
    assert ticks[3] == {"ends": [1, 100000], "ticks": [1, 10, 100, 1000, 10000, 100000]}, ticks
    assert ticks[4] == 101 and ticks[5] == {"time_seconds": 899, "latency_p99_us": 8, "dirty_bytes": 8}, ticks
    # Only a point without neighbours has a dot.
    assert ticks[6] == [4], ticks


def see_budget(page, base):
    """Drive writes per day stand beside the rating and the budget."""
    page.goto(f"{base}/#/volume/tank")
    chart = page.locator("figure.chart").filter(has=page.get_by_text("Drive writes per day", exact=True))
    expect(chart.locator(".legend")).to_have_text(re.compile(r"written [\d.]+.*rated 1\s*budget 0\.5$"))
    expect(page.get_by_text(re.compile(r"^25% of today's 8\sMiB; 20% of all that it allowed in 2\sd, by the count of flashwise$"))).to_be_visible()


def see_disks(page, base, check):
    """Disks say how they are: wear, errors, temperature; a flash says so in the view of its volume too."""
    disk = lambda path, **more: {"path": path, "size_bytes": 1 << 30, "role": "system", "partitions": [], "signatures": [], "mounts": [], "holders": [], "refused": "in use", "can_be_wiped": False, "is_file": False, "rotational": False, **more}
    nvme = disk("/dev/nvme0n1", wear_percent=7, spare_percent=100, media_errors=0, temperature_celsius=38.2, power_on_hours=20000, is_failing=False)
    nvme["partitions"] = [{"path": "cache.img", "size_bytes": 1 << 20, "mounts": [], "holders": [], "signatures": []}]
    worn = disk("/dev/sda", rotational=True, media_errors=3, reallocated=1, is_failing=True)
    page.route("**/v1/disks", lambda route: route.fulfill(json=[nvme, worn]))
    page.goto(f"{base}/#/disks")
    table = page.get_by_role("table", name="Disks of this machine, and files that volumes and pools use")
    good = "7% of its endurance used, 100% spare left, 0 media errors, 38 °C, powered on for 833\u00a0d"
    expect(table.get_by_role("row").filter(has_text="nvme0n1").get_by_role("cell").nth(6)).to_have_text(good)
    bad = table.get_by_role("row").filter(has_text="sda").get_by_role("cell").nth(6)
    expect(bad).to_have_text("it expects to fail, 3 media errors, 1 reallocated sector")
    expect(bad.locator(".bad")).to_be_visible()
    check(page, "smart")
    page.goto(f"{base}/#/volume/tank")
    expect(page.locator(".facts > div").filter(has_text="Flash drive")).to_have_text(f"Flash drive{good}")


def see_forecast(page, base, check):
    """A pool says when it is full, by how it grew."""
    points = [{"time_seconds": day * DAY, "used_bytes": day * MIB} for day in range(11)]
    page.route("**/v1/volumes/tank/history?range=30d", lambda route: route.fulfill(json={"step_seconds": 1800, "points": points}))
    free = page.request.get(f"{base}/v1/pools/tank").json()["free_bytes"]
    page.goto(f"{base}/#/pool/tank")
    full = page.locator(".figures > div").filter(has=page.get_by_text("Full", exact=True))
    left = page.evaluate("async seconds => (await import('/page/numbers.mjs')).duration(seconds)", free / MIB * DAY)
    expect(full).to_have_text(f"Fullin {left}1\u00a0MiB more a day, over 10\u00a0d")
    check(page, "forecast")
    found = page.evaluate("""async () => {
      const { forecast } = await import("/page/pool.mjs");
      const day = at => ({ time_seconds: at * 86400, used_bytes: 5 - at });
      return [forecast([], 9), forecast([day(0), day(0.9)], 9), forecast([day(0), day(1), day(2)], 9)];
    }""")
    assert found == [["too early", "known after a day"], ["too early", "known after a day"], ["not in sight", "1\u00a0B less a day, over 2\u00a0d"]], found


def see_map(page, base):
    """The map of a disk shows how much of each part is filled."""
    disk = page.request.get(f"{base}/v1/pools/tank").json()["disks"][0]
    part = disk["size_bytes"] / 200
    run = {"disk": disk["number"], "path": disk["path"], "offset_bytes": 0, "step_bytes": 65536, "disk_offset_bytes": 10 * part, "length_bytes": part * 1.25, "written": True, "missing": False, "lost": False}
    page.route("**/logical-disks/mail/map", lambda route: route.fulfill(json=[run]))
    page.goto(f"{base}/#/pool/tank")
    page.get_by_role("button", name="Map of mail").click()
    filled = page.locator(".strip").filter(has_text=disk["path"]).locator("rect.written")
    expect(filled).to_have_count(2)
    heights = filled.evaluate_all("all => all.map(one => [one.getAttribute('x'), Math.round(one.getAttribute('height'))])")
    assert heights == [["50", 20], ["55", 5]], heights


def see_connect(page, base, port):
    """Each export has lines to copy for each client."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{base}/#/pool/tank")
    page.get_by_role("link", name="Connect to mail").click()
    expect(page.get_by_role("heading", name="Connect to mail")).to_be_visible()
    target = "iqn.2026-11.org.flashwise:mail"
    expect(page.get_by_role("button", name="Copy the lines for QEMU, iSCSI")).to_be_visible()
    texts = "\n".join(page.locator("pre").all_inner_texts())
    for line in (
        "sudo nbd-client -b 4096 -N mail -unix nbd.sock /dev/nbd0",
        "-drive file='nbd+unix:///mail?socket=nbd.sock',format=raw,if=virtio,cache=none",
        "<source protocol='nbd' name='mail'>\n    <host transport='unix' socket='nbd.sock'/>",
        f"sudo iscsiadm -m node -T {target} -p 127.0.0.1:{port} --login",
        f"-drive file=iscsi://127.0.0.1:{port}/{target}/0,format=raw,if=virtio,cache=none",
        f"<source protocol='iscsi' name='{target}/0'>\n    <host name='127.0.0.1' port='{port}'/>",
    ):
        assert line in texts, f"{line} is not in {texts}"
    page.get_by_role("button", name="Copy the lines for QEMU, iSCSI").click()
    expect(page.get_by_role("button", name="Copy the lines for QEMU, iSCSI")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == f"-drive file=iscsi://127.0.0.1:{port}/{target}/0,format=raw,if=virtio,cache=none"


def see_all(browser, base, cookie, port, pid, check):
    """All situations, each in a page of its own."""
    def seen(alter, look, *more, **size):
        page = situation(browser, cookie(), base, alter, **size)
        look(page, base, *more)
        page.context.close()

    seen(DETACHING, see_detaching, check)
    seen(DETACHING, see_detaching, check, width=360, scheme="dark")
    seen(DEGRADED, see_degraded, check)
    seen(BEHIND, see_behind, check)
    seen(MANY, see_many, check)
    seen(MANY, see_many, check, width=360, scheme="dark")
    seen(WORN, see_wear)
    seen(None, see_what_if)
    seen(None, see_charts)
    seen(BUDGET, see_budget)
    seen(None, see_disks, check)
    seen(None, see_forecast, check)
    seen(None, see_map)
    seen(None, see_connect, port)
    seen(None, see_stale, pid)
