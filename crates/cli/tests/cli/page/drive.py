"""Drives the page of a running server in headless Chromium: each action with the mouse and again with the keyboard. Effects are checked through the
API and on the disks, every view by axe.

Arguments: the address of the API, the port of iSCSI, the folder of the server's files, the port of the webhook, the folder of certificates. With FLASHWISE_SCREENSHOTS, pictures of all views go there;
with FLASHWISE_PAGE, the page's own files come from there and not from the server."""

import json
import os
import re
import shutil
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from situations import see_all, take_pictures

BASE = f"http://{sys.argv[1]}"
ISCSI_PORT = int(sys.argv[2])
FOLDER = Path(sys.argv[3])
WEBHOOK_PORT = int(sys.argv[4])
CERTIFICATES = Path(sys.argv[5])
MIB = 1 << 20
PATIENCE_MS = 30_000
TABS_MAX = 120
CORE = Path(__file__).parents[4] / "core"
AXE = Axe()

# How far an element is from the focus, in presses of Tab: less than zero if it comes before it. About so many, as radio buttons of a group are one stop.
DISTANCE = """element => {
  const stops = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter(stop => !stop.disabled && stop.tabIndex === 0 && stop.checkVisibility({ visibilityProperty: true }) && !(stop.type === "radio" && !stop.checked && stop !== element));
  const [from, to] = [stops.indexOf(document.activeElement), stops.indexOf(element)];
  if (document.activeElement === element) return 0;
  return from < 0 ? 1 : to - from || 1;
}"""


# Elements of the page that are wider than their own box or reach out of the screen, except in tables that scroll.
CUT = """() => [...document.querySelectorAll("main *, header *")].filter(one => {
  const table = one.closest(".scroll");
  if ((table && getComputedStyle(table).overflowX !== "visible") || one.closest(".hidden, svg, .plot, pre, select, .skip, thead") || !one.checkVisibility()) return false;
  const { left, right } = one.getBoundingClientRect();
  return left < -1 || right > document.documentElement.clientWidth + 1 || (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display === "block");
}).map(one => one.outerHTML.slice(0, 120))"""


def api(method, path, body=None, token="sesame"):
    """What the API answers: a status and JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE + path, data, {"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def pool():
    return api("GET", "/v1/pools/tank")[1]


def logical(name):
    return next((disk for disk in pool()["logical_disks"] if disk["name"] == name), None)


def until(what, condition):
    """Waits for what takes its time."""
    end = time.monotonic() + PATIENCE_MS / 1000
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


class Nbd:
    """A client that opens an export, as the NBD protocol has it."""

    def __init__(self, export):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(FOLDER / "nbd.sock"))
        assert self.read(18)[:16] == b"NBDMAGICIHAVEOPT"
        name = export.encode()
        self.socket.sendall(struct.pack(">IQII", 3, 0x49484156454F5054, 1, len(name)) + name)
        self.read(10)

    def read(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            assert more, "the server closed the connection"
            data += more
        return data

    def ask(self, command, offset, data):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, 7, offset, len(data)) + data)
        magic, error, _ = struct.unpack(">IIQ", self.read(16))
        assert (magic, error) == (0x67446698, 0)

    def write(self, offset, data):
        """Writes, durably."""
        self.ask(1, offset, data)
        self.ask(3, 0, b"")

    def read_from(self, offset, length):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 7, offset, length))
        magic, error, _ = struct.unpack(">IIQ", self.read(16))
        assert (magic, error) == (0x67446698, 0)
        return self.read(length)

    def close(self):
        self.socket.close()


DRIVER = "iqn.2026-11.org.example:driver"


def login(export, initiator):
    """An initiator that logs in, in one exchange, and what it is answered: class and detail of the status."""
    keys = {
        "InitiatorName": initiator,
        "TargetName": f"iqn.2026-11.org.flashwise:{export}",
        "SessionType": "Normal",
        "AuthMethod": "None",
    }
    text = "".join(f"{key}={value}\0" for key, value in keys.items()).encode()
    header = struct.pack(">BBBBI6sHIHHII16x", 0x43, 0x87, 0, 0, len(text), b"\x80\0\0\0\0\1", 0, 1, 0, 0, 1, 0)
    connection = socket.create_connection(("127.0.0.1", ISCSI_PORT), PATIENCE_MS / 1000)
    connection.sendall(header + text + b"\0" * (-len(text) % 4))
    answer = connection.recv(4096)
    assert answer[0] == 0x23, answer[:48].hex()
    return connection, answer[36:38]


def iscsi(export):
    """An initiator that logs in, and stays."""
    connection, status = login(export, DRIVER)
    assert status == b"\0\0", status.hex()
    return connection


class Webhook:
    """Takes alerts over HTTPS, with a certificate."""

    def __init__(self, certificate):
        self.messages = messages = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                messages.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", WEBHOOK_PORT), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / f"{certificate}-cert.pem", CERTIFICATES / f"{certificate}-key.pem")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Hand:
    """Whoever uses the page, with the mouse or with the keyboard."""

    def __init__(self, page, keyboard):
        self.page = page
        self.keyboard = keyboard

    def reach(self, thing):
        """Goes to something by the keyboard alone: most of the way in one go, then step by step."""
        expect(thing).to_be_enabled()
        distance = thing.evaluate(DISTANCE)
        for _ in range(abs(distance)):
            self.page.keyboard.press("Tab" if distance > 0 else "Shift+Tab")
        for _ in range(TABS_MAX):
            distance = thing.evaluate(DISTANCE)
            if distance == 0:
                return
            self.page.keyboard.press("Tab" if distance > 0 else "Shift+Tab")
        raise AssertionError(f"the keyboard does not reach {thing}")

    def press(self, thing):
        """Presses a button or a link."""
        if not self.keyboard:
            return thing.click()
        self.reach(thing)
        self.page.keyboard.press("Enter")

    def tick(self, thing):
        """Ticks a box."""
        if not self.keyboard:
            return thing.click()
        self.reach(thing)
        self.page.keyboard.press("Space")

    def choose(self, group, name):
        """Chooses one of a group of radio buttons, by the arrows where there is no mouse."""
        wanted = group.get_by_role("radio", name=name)
        if not self.keyboard:
            wanted.click()
        else:
            self.reach(group.locator("input:checked"))
            for _ in range(group.get_by_role("radio").count()):
                if wanted.is_checked():
                    break
                self.page.keyboard.press("ArrowDown")
        expect(wanted).to_be_checked()

    def type(self, field, text):
        """Fills a field."""
        if self.keyboard:
            self.reach(field)
        else:
            field.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def select(self, field, value):
        """Chooses of a list, by the arrows where there is no mouse: letters count as one word only if they are typed fast."""
        if not self.keyboard:
            return field.select_option(value)
        self.reach(field)
        self.page.keyboard.press("Home")
        for _ in range(field.locator("option").count()):
            if field.input_value() == value:
                break
            self.page.keyboard.press("ArrowDown")
        expect(field).to_have_value(value)

    def go(self, kind, name=None):
        """Goes to a view of the navigation, and on to one volume or pool."""
        link = self.page.get_by_role("navigation").get_by_role("link", name=kind, exact=True)
        self.press(link)
        expect(link).to_have_attribute("aria-current", "page")
        if name:
            self.press(self.page.get_by_role("table", name=kind).get_by_role("link", name=name, exact=True))
            expect(self.page.get_by_role("heading", level=2)).to_contain_text(name)
            expect(link).to_have_attribute("aria-current", "true")

    def confirm(self, typed, says, title=None):
        """Reads what will happen, types the name if there is one to type, and goes on."""
        dialog = self.page.get_by_role("dialog")
        if title:
            expect(dialog.get_by_role("heading")).to_have_text(title)
        expect(dialog).to_contain_text(says)
        on = dialog.locator("button[type=submit]")
        expect(on).to_have_class("act destroys" if typed else "act")
        if typed:
            expect(on).to_be_disabled()
            self.type(dialog.get_by_role("textbox"), typed[:-1])
            expect(on).to_be_disabled()
            self.page.keyboard.type(typed[-1])
        self.press(on)
        expect(dialog).to_have_count(0)

    def is_at_row(self, name):
        """The focus is at the row of what was changed."""
        expect(self.page.locator(f"[data-row='{name}']")).to_be_focused()

    def told(self, text):
        expect(self.page.locator(".message", has_text=text)).to_be_visible()


def sign_in(hand, token):
    page = hand.page
    page.goto(BASE)
    expect(page.locator("main")).to_contain_text("sudo cat /etc/flashwise/token")
    hand.type(page.get_by_label("Token"), "wrong")
    hand.press(page.get_by_role("button", name="Sign in"))
    hand.told("this is not the token")
    hand.type(page.get_by_label("Token"), token)
    hand.press(page.get_by_role("button", name="Sign in"))
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def see_load(hand):
    """Looks at the overview while a client writes."""
    page = hand.page
    hand.go("Overview")
    client = Nbd("mail")
    card = page.get_by_role("article", name="tank")
    figure = lambda name: card.locator("dl > div").filter(has=page.get_by_text(name, exact=True)).locator("dd")

    busy = r"(?!0 )[\d,.]+ requests/s, [1-9].*iB/s"

    def is_shown():
        client.write(0, bytes(65536))
        client.read_from(0, 65536)
        all_of = page.locator(".health").inner_text()
        return re.search(busy, card.inner_text()) and re.search(rf"\d+ volumes, {busy}", all_of)

    until("requests are counted, of the pool and of all volumes", is_shown)
    expect(figure("Hit ratio")).to_have_text(re.compile(r"^[1-9][\d.]*%since the start"))
    spark = figure("Hit ratio").get_by_role("img")
    # A line needs the reads of two seconds.
    until("the hit ratio has a line", lambda: client.read_from(0, 4096) and spark.is_visible())
    expect(figure("p99 of reads")).to_have_text(re.compile(r"^[\d,.]+\s[mu]smedian [\d,.]+\s[mu]s"))
    expect(figure("Dirty")).to_have_text(re.compile(r"^[\d,.]+\s.*B(oldest [\d.]+\s|age unknown)"))
    # It is rated, and no hour has passed.
    expect(figure("Flash lifetime")).to_have_text("too earlyknown after the first hour")
    hand.press(card.get_by_role("link", name="tank", exact=True))
    expect(page.get_by_role("heading", level=2)).to_contain_text("Pool tank")
    client.close()


def make_logical_disks(hand, name):
    """Makes a logical disk by the wizard, changes it, looks where it lies, and deletes it."""
    page = hand.page
    hand.go("Pools", "tank")
    wizard = page.get_by_role("form", name="Make a logical disk")
    hand.type(wizard.get_by_label("1. Name"), "Mail 2")
    reason = wizard.get_by_text("The name contains \u201cM\u201d. Use lower-case letters, digits, hyphens and dots.")
    expect(reason).to_be_visible()
    expect(wizard.get_by_label("1. Name")).to_have_attribute("aria-invalid", "true")
    hand.type(wizard.get_by_label("1. Name"), name)
    expect(reason).to_have_count(0)
    hand.type(wizard.get_by_label("2. Size"), "12")
    hand.select(wizard.get_by_label("Unit"), "MiB")
    hand.choose(wizard.get_by_role("group", name="3. Space"), "Thick")
    hand.choose(wizard.get_by_role("group", name="4. Place"), "Linear")
    hand.select(wizard.get_by_label("5. Mode"), "write-through")
    hand.type(wizard.get_by_label("6. Reserved RAM"), "0.25")
    hand.tick(wizard.get_by_role("checkbox"))
    hand.press(wizard.get_by_role("button", name="Review the logical disk"))
    assert logical(name) is None, "nothing happens before it was confirmed"
    hand.confirm(None, f"as the NBD export {name} or the iSCSI target iqn.2026-11.org.flashwise:{name}", f"Make logical disk {name}")
    hand.told(f"The logical disk {name} is made.")
    hand.is_at_row(name)
    made = logical(name)
    assert (made["size_bytes"], made["allocated_bytes"]) == (12 * MIB, 12 * MIB), made
    assert made["thick"] and not made["striped"] and not made["cached"] and made["mode"] == "write-through", made
    assert made["pinned_ram_bytes"] == MIB // 4, made
    # What a client writes there lies where the page says.
    client = Nbd(name)
    client.write(0, bytes([0xA5]) * 65536)
    client.close()
    hand.press(page.get_by_role("button", name=f"Map of {name}", exact=True))
    pieces = page.get_by_role("table", name=f"Pieces of {name}").locator("tbody tr")
    expect(pieces.first).to_be_visible()
    run = api("GET", f"/v1/pools/tank/logical-disks/{name}/map")[1][0]
    expect(pieces.first).to_contain_text(run["path"])
    with open(FOLDER / run["path"], "rb") as disk:
        disk.seek(run["disk_offset_bytes"])
        assert disk.read(65536) == bytes([0xA5]) * 65536
    hand.press(page.get_by_role("button", name="Close the map"))

    def form():
        hand.press(page.get_by_role("button", name=f"Change {name}", exact=True))
        return page.get_by_role("form", name=f"Change {name}")

    change = form()
    expect(change.get_by_label("Size")).to_have_value("12")
    hand.press(change.get_by_role("button", name="Review the change"))
    hand.told("Nothing is different.")
    hand.type(change.get_by_label("Size"), "13")
    hand.select(change.get_by_label("Mode"), "write-around")
    hand.type(change.get_by_label("Reserved RAM"), "0.5")
    hand.tick(change.get_by_role("checkbox"))
    hand.press(change.get_by_role("button", name="Review the change"))
    hand.confirm(None, f"{name} grows from 12 MiB to 13 MiB.", f"Change logical disk {name}")
    hand.told(f"{name} is changed.")
    hand.is_at_row(name)
    now = logical(name)
    assert (now["size_bytes"], now["mode"], now["cached"]) == (13 * MIB, "write-around", True), now
    assert now["pinned_ram_bytes"] == MIB // 2, now
    # What was changed by somebody else meanwhile is not changed blindly.
    change = form()
    hand.tick(change.get_by_role("checkbox"))
    hand.press(change.get_by_role("button", name="Review the change"))
    expect(page.get_by_role("dialog")).to_contain_text(f"{name}")
    assert api("PATCH", f"/v1/pools/tank/logical-disks/{name}", {"size_bytes": 14 * MIB})[0] == 200
    hand.press(page.get_by_role("dialog").locator("button[type=submit]"))
    expect(page.get_by_role("dialog")).to_contain_text("it has changed since you read it")
    hand.press(page.get_by_role("button", name="Cancel"))
    assert logical(name)["cached"]
    expect(page.get_by_role("table", name="Logical disks")).to_contain_text("14 MiB")
    hand.press(page.get_by_role("button", name=f"Delete {name}", exact=True))
    hand.confirm(name, f"The data on {name}, 14 MiB, is lost.", f"Delete logical disk {name}")
    hand.told(f"{name} is deleted.")
    expect(page.get_by_role("heading", level=2)).to_be_focused()
    assert logical(name) is None
    all_of = lambda pool: sum(disk["allocated_bytes"] for disk in pool["logical_disks"])
    until("its space is free again", lambda: pool()["used_bytes"] == all_of(pool()))


def move_disks(hand, extra):
    """Adds a disk that holds something, takes another out, wipes it and adds it again."""
    extra = str(FOLDER.resolve() / extra)
    page = hand.page
    (FOLDER / extra).write_bytes(os.urandom(MIB) * 16)
    hand.go("Pools", "tank")
    form = page.get_by_role("form", name="Add a disk")
    hand.type(form.get_by_label("Block device or file"), extra)
    hand.press(form.get_by_role("button", name="Review the disk"))
    hand.told(f"{extra}: it holds data of an unknown kind")
    hand.tick(form.get_by_role("checkbox", name="Wipe it if it holds data"))
    hand.press(form.get_by_role("button", name="Review the disk"))
    hand.confirm(extra, f"The data on {extra} is lost")
    hand.told(f"{extra} is a disk of the pool.")
    assert extra in [disk["path"] for disk in pool()["disks"]]
    assert (FOLDER / extra).read_bytes()[:8] == b"fwpooldk"

    def gone(path):
        return lambda: path not in [disk["path"] for disk in pool()["disks"]]

    # As the configuration has it or, once it was added again, as it is found from any directory.
    for path in (next(disk["path"] for disk in pool()["disks"] if disk["path"].endswith("c.img")), extra):
        hand.press(page.get_by_role("button", name=f"Take out {path}", exact=True))
        hand.confirm(None, f"Then {path} leaves pool tank, and is blank.")
        until(f"{path} is taken out", gone(path))
        expect(page.get_by_role("table", name="Disks of the pool")).not_to_contain_text(path)
    assert not any((FOLDER / "c.img").read_bytes()[:MIB]), "what was taken out is blank"
    with open(FOLDER / "c.img", "r+b") as file:
        file.write(os.urandom(MIB))
    hand.go("Disks")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="c.img", exact=True))
    expect(row).to_contain_text("foreign")
    hand.press(row.get_by_role("button", name="Wipe c.img"))
    hand.confirm("c.img", "The data on c.img is lost: it holds data of an unknown kind.", "Wipe disk c.img")
    hand.told("c.img is blank.")
    hand.is_at_row("c.img")
    expect(row).to_contain_text("spare")
    assert not any((FOLDER / "c.img").read_bytes()[:MIB])
    hand.go("Pools", "tank")
    form = page.get_by_role("form", name="Add a disk")
    hand.type(form.get_by_label("Block device or file"), "c.img")
    hand.press(form.get_by_role("button", name="Review the disk"))
    hand.confirm(None, "c.img becomes a disk of pool tank")
    until("c.img is a disk again", lambda: not gone(str(FOLDER.resolve() / "c.img"))())


def two_blank_files(name):
    files = [FOLDER / f"{name}-{number}.img" for number in (1, 2)]
    for file in files:
        file.write_bytes(b"")
        os.truncate(file, 16 * MIB)
    return files


def keep_a_disk(hand, name):
    """Starts to take out a disk that cannot be emptied, since a part of it cannot be read, and has it stay."""
    page = hand.page
    files = two_blank_files(name)
    status, made = api("POST", "/v1/pools", {"name": name, "disks": [str(file) for file in files], "settings": {"ram": "0"}})
    assert status == 201, made
    status, _ = api("POST", f"/v1/pools/{name}/logical-disks", {"name": f"{name}-data", "size_bytes": 6 * MIB})
    assert status == 201
    client = Nbd(f"{name}-data")
    client.write(0, os.urandom(4 * MIB))
    client.close()
    disk = lambda: api("GET", f"/v1/pools/{name}")[1]["disks"][0]
    os.truncate(files[0], 2 * MIB)
    hand.go("Pools", name)
    hand.press(page.get_by_role("button", name=f"Take out {files[0]}", exact=True))
    hand.confirm(None, f"Then {files[0]} leaves pool {name}, and is blank.")
    assert disk()["state"] == "leaving"
    expect(page.get_by_role("table", name="Disks of the pool")).to_contain_text("could not be moved")
    task = page.get_by_role("status").filter(has_text=f"Emptying {files[0]}: ")
    expect(task.get_by_role("progressbar")).to_be_visible()
    expect(task).to_have_text(re.compile(r": [\d.]+\s.*B of [\d.]+\s.*iB"))
    hand.press(page.get_by_role("button", name=f"Keep {files[0]}", exact=True))
    hand.confirm(None, f"{files[0]} is no longer being emptied, and stays in pool {name}.")
    hand.told(f"{files[0]} stays.")
    assert disk()["state"] == "ok"
    os.truncate(files[0], 16 * MIB)
    # Its thread ends with what it had begun.
    until("no client has it", lambda: api("DELETE", f"/v1/pools/{name}/logical-disks/{name}-data?confirm={name}-data")[0] == 204)
    assert api("DELETE", f"/v1/pools/{name}?confirm={name}")[0] == 204


def make_a_pool(hand, name):
    """Makes a pool of two files with a flash, which is refused while one of them holds something."""
    page = hand.page
    files = two_blank_files(name)
    files[0].write_bytes(os.urandom(MIB) * 16)
    hand.go("Disks")
    form = page.get_by_role("form", name="Make a pool")
    hand.type(form.get_by_label("1. Name"), name)
    others = form.get_by_label("Files, one per line")
    hand.type(others, str(files[0]))
    page.keyboard.press("Enter")
    page.keyboard.type(str(files[1]))
    hand.type(form.get_by_label("Flash: a block device or a file"), str(FOLDER / f"{name}.cache"))
    hand.type(form.get_by_label("Size on the flash"), "128MiB")
    hand.type(form.get_by_label("RAM"), "4MiB")
    hand.select(form.get_by_label("4. Mode"), "write-through")
    review = form.get_by_role("button", name="Review the pool")
    hand.press(review)
    hand.told(f"{name}-1.img: it holds data of an unknown kind")
    hand.tick(form.get_by_role("checkbox", name="Wipe them if they hold data"))
    hand.press(review)
    assert name not in [pool["name"] for pool in api("GET", "/v1/pools")[1]], "nothing happens before it was confirmed"
    expect(page.get_by_role("dialog")).to_contain_text("It is served at once, and after each restart")
    hand.confirm(name, f"The data on {files[0]} is lost")
    hand.told(f"The pool {name} is served.")
    status, made = api("GET", f"/v1/pools/{name}")
    assert status == 200 and [disk["path"] for disk in made["disks"]] == [str(file) for file in files], made
    volume = api("GET", f"/v1/volumes/{name}")[1]
    assert (volume["write_mode"], volume["flash_bytes"] > 0) == ("write-through", True), volume
    assert [pool["name"] for pool in json.loads((FOLDER / "pools.json").read_text())][-1] == name
    hand.go("Pools", name)
    expect(page.get_by_text("There are no logical disks yet.")).to_be_visible()


def delete_the_pool(hand, name):
    """Deletes the pool that was made, which nothing is in."""
    page = hand.page
    hand.press(page.get_by_role("button", name="Delete the pool"))
    hand.confirm(name, f"Pool {name} has no logical disks, and will not be served any more.")
    expect(page.get_by_role("heading", name="Disks", level=2)).to_be_visible()
    hand.go("Pools")
    expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
    assert api("GET", f"/v1/pools/{name}")[0] == 404
    assert not any((FOLDER / f"{name}-1.img").read_bytes()[:MIB]), "its disks are blank"
    assert name not in (FOLDER / "pools.json").read_text()


def make_a_volume(hand, name):
    """Puts a cache before a file that has data, and takes it away again."""
    page = hand.page
    data = os.urandom(8 * MIB)
    backend = FOLDER / f"{name}.img"
    backend.write_bytes(data)
    hand.go("Volumes")
    form = page.get_by_role("form", name="Make a volume")
    hand.type(form.get_by_label("1. Name"), "web page")
    expect(form.get_by_text("The name contains a space. Use lower-case letters, digits, hyphens and dots.")).to_be_visible()
    hand.type(form.get_by_label("1. Name"), name)
    hand.type(form.get_by_label("2. Disk: a block device or a file"), str(FOLDER / "one.img"))
    hand.type(form.get_by_label("Flash: a block device or a file"), str(FOLDER / f"{name}.cache"))
    hand.type(form.get_by_label("Size on the flash"), "128MiB")
    hand.type(form.get_by_label("RAM"), "4MiB")
    hand.select(form.get_by_label("4. Mode"), "write-through")
    review = form.get_by_role("button", name="Review the volume")
    hand.press(review)
    hand.told("which is the backend of volume 'one' too")
    hand.type(form.get_by_label("2. Disk: a block device or a file"), str(backend))
    hand.press(review)
    assert api("GET", f"/v1/volumes/{name}")[0] == 404, "nothing happens before it was confirmed"
    hand.confirm(None, f"Volume {name} has 8 MiB of {backend}. Its data stays.", f"Make volume {name}")
    hand.told(f"The volume {name} is served.")
    hand.is_at_row(name)
    client = Nbd(name)
    assert client.read_from(MIB, MIB) == data[MIB : 2 * MIB]
    hand.go("Volumes", name)
    remove = page.get_by_role("button", name="Remove the volume")
    hand.press(remove)
    hand.told("is in use: 1 client has it open; disconnect it first")
    client.close()
    until("the client has gone", lambda: not api("GET", f"/v1/volumes/{name}")[1]["clients"])
    hand.press(remove)
    hand.confirm(name, f"Volume {name} is not served any more. Its data stays on {backend}.", f"Remove volume {name}")
    expect(page.get_by_role("heading", name="Volumes", level=2)).to_be_visible()
    expect(page.get_by_role("table", name="Volumes").get_by_role("link", name=name, exact=True)).to_have_count(0)
    assert backend.read_bytes() == data and name not in (FOLDER / "volumes.json").read_text()
    # That of the configuration stays.
    assert api("DELETE", "/v1/volumes/one?dry-run=true")[0] == 409


def use_a_cache(hand, name):
    """Changes a volume's settings, flushes it, and detaches its flash."""
    page = hand.page
    pattern = os.urandom(256 << 10)
    client = Nbd(name)
    # In order, a flush would bring it to the backend.
    client.ask(1, MIB, pattern) if name == "one" else client.write(MIB, pattern)
    backend = FOLDER / f"{name}.img"
    assert backend.read_bytes()[MIB : MIB + len(pattern)] != pattern, "the backend lacks it"
    hand.go("Volumes", name)
    if name == "one":
        state = page.locator(".facts > div").filter(has=page.get_by_text("Backend state", exact=True))
        expect(state).to_have_text(re.compile(r"^Backend stateconsistent as of \d+:\d\d:\d\d.* \([\d.]+\s\w+ ago\); [1-9]\d* newer blocks$"))
    client.close()
    hand.select(page.get_by_label("Policy", exact=True), "lru")
    hand.press(page.get_by_role("button", name="Review changes"))
    hand.confirm(None, "policy changes from larc to lru.")
    hand.told("The settings are changed until the next start")
    policy = page.locator(".setting", has=page.get_by_label("Policy", exact=True))
    expect(policy.locator(".marks")).to_have_text("default: larcuntil the next start")
    assert api("GET", f"/v1/volumes/{name}")[1]["policy"] == "lru"
    flushes = api("GET", f"/v1/volumes/{name}")[1]["flushes"]
    hand.press(page.get_by_role("button", name="Flush"))
    hand.told("All written data is durable.")
    assert api("GET", f"/v1/volumes/{name}")[1]["flushes"] > flushes
    hand.choose(page.get_by_role("group", name="How far back"), "24 hours")
    hand.choose(page.get_by_role("group", name="How far back"), "15 minutes")
    hand.press(page.locator("summary", has_text="Throughput as a table"))
    expect(page.get_by_role("table", name="Throughput, newest first")).to_be_visible()
    hand.press(page.get_by_role("button", name="Detach the flash"))
    hand.confirm(name, "are discarded")
    until(f"{name} is detached", lambda: api("GET", f"/v1/volumes/{name}")[1]["state"] == "detached")
    expect(page.get_by_text("The flash is detached. The backend has all data.")).to_be_visible()
    assert backend.read_bytes()[MIB : MIB + len(pattern)] == pattern
    # The way back.
    hand.press(page.get_by_role("button", name="Attach the flash"))
    hand.confirm(None, f"The next start of the server uses {name}.cache for {name} again.", f"Attach the flash of {name}")
    hand.told("The next start of the server uses the flash again.")
    assert api("GET", f"/v1/volumes/{name}")[1]["attaches_at_start"]
    # And back again.
    hand.press(page.get_by_role("button", name="Detach the flash"))
    hand.confirm(None, f"The next start of the server does not use {name}.cache.")
    expect(page.get_by_role("button", name="Attach the flash")).to_be_visible()
    assert not api("GET", f"/v1/volumes/{name}")[1]["attaches_at_start"]


def forget_what_is_gone(hand, kind, name):
    """Forgets a volume or a pool that is not served."""
    page = hand.page
    hand.go(f"{kind.title()}s")
    row = page.get_by_role("table", name=f"Not served: {kind}s that could not be opened").get_by_role("row").filter(has_text=name)
    expect(row).to_contain_text("/nowhere/")
    hand.press(row.get_by_role("button", name=f"Forget {name}"))
    hand.confirm(name, f"{kind.title()} {name} is not served, and", f"Forget {kind} {name}")
    hand.told(f"{name} is forgotten.")
    expect(row).to_have_count(0)
    expect(page.get_by_role("heading", level=2)).to_be_focused()
    assert name not in (FOLDER / f"{kind}s.json").read_text()
    assert name not in [one["name"] for one in api("GET", "/v1/status")[1][f"unserved_{kind}s"]]


def see_clients(hand):
    """Looks at clients, assigns an export to one of two initiators and another to a certificate, which ends the sessions of others, and
    disconnects those who stay."""
    page = hand.page
    nbd, other = Nbd("mail"), iscsi("web")
    hand.go("Clients")
    table = page.get_by_role("table", name="Clients that have a volume or a logical disk open")
    expect(table.get_by_role("row").filter(has_text="NBD")).to_contain_text("mail")
    expect(table.get_by_role("row").filter(has_text="iSCSI")).to_contain_text(DRIVER)
    # What each client reads and writes is known.
    nbd.read_from(0, MIB)
    own = table.get_by_role("row").filter(has_text="NBD").get_by_role("cell")
    expect(own.nth(5)).to_have_text(re.compile(r"^[1-9][\d.]*\s.*B/s 1\sMiB$"))
    expect(own.nth(6)).to_have_text(re.compile(r"0\sB/s 0\sB$"))
    status, refused = api("DELETE", "/v1/pools/tank/logical-disks/mail?dry-run=true")
    assert (status, "in use" in refused["error"]) == (409, True), refused

    access = page.get_by_role("table", name="Exports and who can open them", exact=True)
    row = access.get_by_role("row").filter(has_text="flashwise:web")
    expect(row).to_contain_text("all initiators")
    hand.press(row.get_by_role("button", name="Assign web"))
    form = page.get_by_role("form", name="Assign web")
    hand.type(form.get_by_label("Client 1", exact=True), "nobody")
    hand.press(form.get_by_role("button", name="Review the assignment"))
    hand.told("found 'nobody', expected the name of an initiator")
    hand.type(form.get_by_label("Client 1", exact=True), f"{DRIVER}-2")
    hand.tick(form.get_by_label("Client 1 is read-only"))
    hand.press(form.get_by_role("button", name="Review the assignment"))
    hand.confirm(None, f"{DRIVER} has it open, and is disconnected.")
    hand.told("web is assigned.")
    expect(row).to_contain_text(f"{DRIVER}-2 (read-only)")
    assert other.recv(1) == b"", "its session has ended"
    expect(table.get_by_role("row").filter(has_text="iSCSI")).to_have_count(0)
    # Status 0x0202: it may not log in to this target.
    assert login("web", DRIVER)[1] == b"\x02\x02" and login("web", f"{DRIVER}-2")[1] == b"\0\0"
    kept = json.loads((FOLDER / "assignments.json").read_text())
    assert kept == {"web": [{"initiator": f"{DRIVER}-2", "read_only": True}]}, kept
    hand.press(row.get_by_role("button", name="Assign web"))
    hand.press(page.get_by_role("button", name="Use the configuration"))
    hand.confirm(None, "Over iSCSI, web is for all initiators that may log in; over NBD, it is for all clients.")
    expect(row).to_contain_text("all initiators")

    row = access.get_by_role("row").filter(has_text="flashwise:mail")
    hand.press(row.get_by_role("button", name="Assign mail"))
    form = page.get_by_role("form", name="Assign mail")
    hand.type(form.get_by_label("Client 1", exact=True), "tls:")
    hand.press(form.get_by_role("button", name="Review the assignment"))
    hand.told("found 'tls:', expected the name of an initiator")
    hand.type(form.get_by_label("Client 1", exact=True), "tls:db.example.com")
    hand.tick(form.get_by_label("Client 1 is read-only"))
    hand.press(form.get_by_role("button", name="Review the assignment"))
    hand.confirm(None, "Over iSCSI, mail is for no initiator; over NBD, it is for only tls:db.example.com (read-only).")
    hand.told("mail is assigned.")
    expect(row).to_contain_text("no initiator")
    expect(row).to_contain_text("tls:db.example.com (read-only)")
    assert nbd.socket.recv(1) == b"", "its connection has ended"
    nbd.close()
    expect(table.get_by_role("row").filter(has_text="NBD")).to_have_count(0)
    try:
        Nbd("mail")
        raise RuntimeError("mail is there without a certificate")
    except AssertionError:
        pass
    hand.press(row.get_by_role("button", name="Assign mail"))
    hand.press(page.get_by_role("button", name="Use the configuration"))
    hand.confirm(None, "Over iSCSI, mail is for all initiators that may log in; over NBD, it is for all clients.")
    expect(row).to_contain_text("all initiators")
    nbd = Nbd("mail")

    other = iscsi("web")
    for export, connection in (("mail", nbd.socket), ("web", other)):
        hand.press(table.get_by_role("row").filter(has_text=export).get_by_role("button", name="Disconnect"))
        hand.confirm(None, f"to {export} closes after the answers to its requests.")
        hand.told(f"is disconnected from {export}.")
        assert connection.recv(1) == b"", f"the connection to {export} has ended"
        connection.close()
    expect(page.get_by_text("No client has a volume or a logical disk open.")).to_be_visible()


def give_up_a_disk(hand, path):
    """Goes on without a disk that is missing."""
    page = hand.page
    hand.go("Pools", "old")
    disks = page.get_by_role("table", name="Disks of the pool")
    expect(disks.get_by_role("row").filter(has_text=path)).to_contain_text("missing")
    hand.press(page.get_by_role("button", name=f"Give up {path}"))
    hand.confirm(path, "lost")
    hand.told(f"{path} is given up.")
    expect(disks).not_to_contain_text(path)
    assert path not in [disk["path"] for disk in api("GET", "/v1/pools/old")[1]["disks"]]


def see_events(hand, *texts):
    page = hand.page
    hand.go("Events")
    table = page.get_by_role("table", name="Events, newest first")
    for text in texts:
        expect(table.get_by_text(text).first).to_be_visible()
    # Who did it: the token, the address, the page.
    by = table.get_by_role("row").filter(has_text="Settings were changed: policy = lru").first
    expect(by).to_contain_text(re.compile(r"admin \(token-file\), from 127\.0\.0\.1, on the page$"))
    rows = table.locator("tbody tr")
    all_of = rows.count()
    hand.type(page.get_by_label("Find events"), "policy = LRU")
    expect(rows.first).to_contain_text("policy = lru")
    assert rows.count() < all_of
    hand.type(page.get_by_label("Find events"), " ")
    hand.select(page.get_by_label("Severity"), "warning")
    expect(rows.first).to_be_visible()
    expect(table.get_by_text("Settings were changed")).to_have_count(0)
    for row in rows.all_inner_texts():
        assert "warning" in row or "fault" in row, row
    with page.expect_download() as download:
        hand.press(page.get_by_role("link", name="CSV"))
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0] == "number,time_seconds,severity,volume,text,by" and len(lines) == rows.count() + 1, lines
    status, exported = api("GET", "/v1/events/export?severity=fault&about=old")
    assert status == 200 and all((event["severity"], event["volume"]) == ("fault", "old") for event in exported), exported


def see_alerts(hand, mail):
    """Looks at the alerts under the bell, and sends a test of where they go."""
    page = hand.page
    bell = page.get_by_role("button", name=re.compile(r"^Alerts, \d+ new$"))
    hand.press(bell)
    alerts = page.get_by_role("region", name="Alerts", exact=True)
    told = lambda: [event["text"] for event in api("GET", "/v1/events/export?severity=warning")[1]]
    # The second is of the first minute.
    for text in ["The pool warns", "The p99 of reads that miss was"][: 2 if hand.keyboard else 1]:
        until(text, lambda: any(text in one for one in told()))
        # Loop devices of other programs go, and may fill the bell.
        if not any("/dev/loop" in one for one in told()):
            expect(alerts.get_by_text(text).first).to_be_visible()
    check_view(page, f"bell-{'keyboard' if hand.keyboard else 'mouse'}")
    if hand.keyboard:
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Alerts", exact=True)).to_be_focused()
    else:
        hand.press(alerts.get_by_role("link", name="All events, and where alerts go"))
    expect(page.get_by_role("button", name="Alerts", exact=True)).to_be_visible()
    expect(alerts).to_have_count(0)
    hand.go("Events")
    receiver = f"localhost:{WEBHOOK_PORT}"
    test = page.get_by_role("button", name="Send a test")
    hand.press(test)
    hand.told(f"The test failed. {receiver}: ")
    # A certificate of another authority is not trusted.
    webhook = Webhook("stranger")
    hand.press(test)
    hand.told("certificate")
    webhook.close()
    webhook = Webhook("server")
    hand.press(test)
    hand.told("The test was sent.")
    expect(page.get_by_text(re.compile(f"^{receiver}, last sent at "))).to_be_visible()
    expect(page.get_by_text(re.compile("^ops@example.com, last sent at "))).to_be_visible()
    says = "This is a test of the alerts, by admin (token-file), from 127.0.0.1, on the page"
    path, message = webhook.messages[-1]
    webhook.close()
    assert path == "/hook?key=hidden" and message["text"].endswith(says), webhook.messages
    sent = mail.read_text()
    assert "To: ops@example.com" in sent and says in sent, sent
    mail.unlink()


VIEWS = {
    "overview": "#/overview",
    "volumes": "#/volumes",
    "pools": "#/pools",
    "connect": "#/connect/mail",
    "volume": "#/volume/tank",
    "disks": "#/disks",
    "pool": "#/pool/tank",
    "clients": "#/clients",
    "events": "#/events",
}


def check_numbers(page):
    """The page formats numbers as the server and the command line do."""
    examples = [line.split(" ", 2) for line in (CORE / "src/human/examples.txt").read_text().splitlines()]
    shown = page.evaluate(
        """async examples => {
            const numbers = await import("/page/numbers.mjs");
            return examples.map(([kind, value]) => numbers[kind](Number(value)).replaceAll("\u00a0", " "));
        }""",
        examples,
    )
    wrong = [(example, text) for example, text in zip(examples, shown) if example[2] != text]
    assert not wrong, wrong


def check_view(page, name):
    """Nothing for axe, and nothing that has to be scrolled sideways."""
    found = AXE.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert not found, f"{name}: " + json.dumps([(one["id"], [node["target"] for node in one["nodes"]]) for one in found])
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0, f"{name} is {over} px too wide"
    # No text or button runs out of its box, but in what scrolls by itself.
    cut = page.evaluate(CUT)
    assert not cut, f"{name}: {cut}"
    if pictures := os.environ.get("FLASHWISE_SCREENSHOTS"):
        page.screenshot(path=Path(pictures) / f"{name}.png", full_page=True)


class Browser:
    """Chromium, and what went wrong in its pages."""

    def __init__(self, playwright):
        found = shutil.which("chromium") or shutil.which("google-chrome")
        self.chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        self.wrong = []

    def page(self, width, height, scheme="light", scale=1):
        viewport = {"width": width, "height": height}
        context = self.chromium.new_context(viewport=viewport, color_scheme=scheme, device_scale_factor=scale)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", self.console)
        page.on("request", self.request)
        if files := os.environ.get("FLASHWISE_PAGE"):
            own = lambda route: route.fulfill(path=files + route.request.url.split("/page")[1])
            page.route(f"{BASE}/page/*.*", own)
        return page

    def console(self, message):
        # Chromium tells of each answer that is an error, which the page shows.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.wrong.append(f"console: {message.text}")

    def request(self, request):
        if not request.url.startswith((BASE, "data:")):
            self.wrong.append(f"a request to {request.url}")


def main():
    expect.set_options(timeout=PATIENCE_MS)
    for name in ("mail", "web"):
        assert api("POST", "/v1/pools/tank/logical-disks", {"name": name, "size_bytes": 8 * MIB})[0] == 201
    client = Nbd("mail")
    client.write(0, os.urandom(2 * MIB))
    client.close()
    # Reads that miss, for the alarm.
    client = Nbd("one")
    for number in range(40):
        client.read_from(16 * MIB + number * 65536, 65536)
    client.close()
    with sync_playwright() as playwright:
        browser = Browser(playwright)
        for keyboard, width, name in ((False, 1280, "one"), (True, 360, "two")):
            hand = Hand(browser.page(width, 800), keyboard)
            sign_in(hand, "sesame")
            state = hand.page.get_by_text("a disk is missing" if name == "two" else "2 disks are missing")
            # More than three findings are folded.
            expect(state).to_be_hidden()
            hand.press(hand.page.locator(".health summary"))
            expect(state).to_be_visible()
            check_numbers(hand.page)
            forget_what_is_gone(hand, "volume", f"gone-{name}")
            forget_what_is_gone(hand, "pool", f"gone-pool-{name}")
            see_load(hand)
            make_logical_disks(hand, f"disk-{name}")
            move_disks(hand, f"extra-{name}.img")
            keep_a_disk(hand, f"slow-{name}")
            make_a_pool(hand, f"new-{name}")
            delete_the_pool(hand, f"new-{name}")
            make_a_volume(hand, f"vol-{name}")
            use_a_cache(hand, name)
            see_clients(hand)
            give_up_a_disk(hand, f"lost-{name}.img")
            see_events(hand, f"Over iSCSI, web is for only {DRIVER}-2 (read-only)", "was disconnected from mail", f"The logical disk disk-{name} was deleted", "The disk c.img was wiped", "Settings were changed: policy = lru")
            see_alerts(hand, FOLDER / "mail.txt")
            hand.press(hand.page.get_by_role("button", name="Sign out"))
            expect(hand.page.get_by_label("Token")).to_be_visible()
            check_view(hand.page, f"sign-in-{width}")
            assert hand.page.context.cookies() == []
            hand.page.context.close()

        # Who may only look has nothing to press that changes something.
        hand = Hand(browser.page(1280, 800), False)
        sign_in(hand, "peep")
        for kind, name in (("Volumes", "one"), ("Pools", "tank")):
            hand.go(kind, name)
            buttons = hand.page.locator("[title^='Your token']")
            expect(buttons).not_to_have_count(0)
            for button in buttons.all():
                expect(button).to_be_disabled()
        assert hand.page.get_by_role("button", name="Delete mail").is_disabled()
        hand.page.context.close()

        # A width of 640 at twice the pixels is what 1,280 px are at a zoom of 200 %.
        for width, scheme, scale in [(1280, "light", 1), (360, "dark", 1), (640, "light", 2)]:
            page = browser.page(width, 800, scheme, scale)
            page.context.add_cookies([{**cookie(), "url": BASE}])
            for name, path in VIEWS.items():
                page.goto(f"{BASE}/{path}")
                expect(page.get_by_role("heading", level=2).first).to_be_visible()
                expect(page.get_by_text("Loading.")).to_have_count(0)
                if name == "pool":
                    page.get_by_role("button", name="Map of mail").click()
                    expect(page.get_by_role("table", name="Pieces of mail")).to_be_visible()
                check_view(page, f"{name}-{width}-{scheme}")
            page.goto(f"{BASE}/#/pool/tank")
            page.get_by_role("button", name="Delete mail").click()
            expect(page.get_by_role("dialog")).to_be_visible()
            check_view(page, f"dialog-{width}-{scheme}")
            page.context.close()
        if os.environ.get("FLASHWISE_SCREENSHOTS"):
            take_pictures(browser, BASE, cookie, VIEWS, check_view)
        see_all(browser, BASE, cookie, ISCSI_PORT, api("GET", "/v1/status")[1]["pid"], check_view)
        assert not browser.wrong, browser.wrong


def cookie():
    """Signs in, and gives the cookie that stands for the token."""
    body = json.dumps({"token": "sesame"}).encode()
    request = urllib.request.Request(f"{BASE}/v1/session", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        name, value = answer.headers["Set-Cookie"].split(";")[0].split("=")
        return {"name": name, "value": value}


main()
