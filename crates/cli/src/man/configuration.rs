//! flashwise.toml(5), from the configuration with comments in the documentation. A test of the server compares that
//! with its keys and defaults.

use std::io::{self, Write};

use clap_mangen::roff::{Roff, bold, roman};

use super::{Section, Text, add, name};

const EXAMPLE: &str = include_str!("flashwise.toml");

const END: &[Section] = &[
    (
        "EXAMPLES",
        &[
            Text::Plain("A disk behind an NVMe drive, for clients on this machine:"),
            Text::Commands(
                "listen = \"nbd+unix:///?socket=/run/flashwise/nbd.sock\"\n\
                 \n\
                 [[volume]]\n\
                 name = \"data\"\n\
                 backend = \"/dev/disk/by-id/ata-DISK\"\n\
                 flash = \"/dev/disk/by-id/nvme-SSD\"\n\
                 ram = \"1GiB\"",
            ),
            Text::Plain("Check a configuration without starting a server:"),
            Text::Commands("flashwise serve --check-config /etc/flashwise/flashwise.toml"),
        ],
    ),
    (
        "FILES",
        &[
            Text::Entry("/etc/flashwise/flashwise.toml", "The configuration that flashwise.service uses."),
            Text::Entry(
                "/usr/share/doc/flashwise/flashwise.toml",
                "All keys with their defaults, as a file to copy from.",
            ),
        ],
    ),
    ("SEE ALSO", &[Text::Plain("flashwise(1), flashwise-serve(8)")]),
];

/// Renders the page after its title.
pub fn page(roff: &mut Roff, out: &mut dyn Write) -> io::Result<()> {
    name(roff, "flashwise.toml", "configuration of flashwise serve");
    roff.control("SH", ["DESCRIPTION"]);
    let (_, rest) = EXAMPLE.split_once("\n#\n").expect("the file begins with two paragraphs");
    let (second, rest) = rest.split_once("\n\n").expect("keys follow");
    roff.text([roman(
        "The file is in TOML. Each key is shown with its default value. A key whose default is not a \
        fixed value is shown with an example.",
    )]);
    roff.control("PP", []);
    comments(roff, second.lines());
    roff.control("SH", ["KEYS BEFORE THE FIRST TABLE"]);
    let mut before: Vec<&str> = Vec::new();
    for line in rest.lines() {
        if let Some(table) = line.strip_prefix('[') {
            roff.control("SH", [format!("[{}", table.to_uppercase()).as_str()]);
            comments(roff, before.drain(..));
        } else if let Some((key, value)) = key(line) {
            roff.control("TP", []);
            let kind = if line.starts_with('#') { "    (example)" } else { "" };
            roff.text([bold(key), roman(format!(" = {value}{kind}"))]);
            if before.is_empty() {
                roff.text([roman("As above.")]);
            }
            comments(roff, before.drain(..));
        } else if !line.is_empty() {
            before.push(line);
        }
    }
    add(roff, END);
    roff.to_writer(out)
}

/// Returns the key and the value of a line: `key = value`, also after `#`.
fn key(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix('#').unwrap_or(line);
    let (key, value) = line.split_once(" = ")?;
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    is_key.then_some((key, value))
}

/// Adds comments. Items of lists, and lines that are indented, begin a line.
fn comments<'a>(roff: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    for line in lines {
        let text = line.trim_start_matches('#');
        let text = text.strip_prefix(' ').unwrap_or(text);
        let text = text.trim_start();
        if text.is_empty() {
            roff.control("IP", []);
            continue;
        }
        if ["- ", "all:", "none:"].iter().any(|start| text.starts_with(start)) {
            roff.control("br", []);
        }
        roff.text([roman(text)]);
    }
}
