//! Sections of the manual pages that no table has.

use super::Section;
use super::Text::{Commands, Entry, Plain};

const EXIT_STATUS: &[super::Text] = &[
    Entry("0", "Success."),
    Entry("1", "The command failed, for example because of an I/O error."),
    Entry(
        "2",
        "The command line, the configuration or an input file is wrong. The message names the file, line or key.",
    ),
];

/// The end of flashwise(1).
pub const OVERVIEW: &[Section] = &[
    (
        "EXAMPLES",
        &[
            Plain("Find out which policy and size fit a workload:"),
            Commands("flashwise simulate trace.csv --policy lru,larc --size 1%,10%,20% --html report.html"),
            Plain("Record the requests of a disk for that:"),
            Commands("flashwise capture /dev/sdb --out sdb.csv.zst"),
            Plain("Cache a disk, look at it, and undo it:"),
            Commands(
                "flashwise serve --backend /dev/sdb --flash /dev/nvme0n1 --listen \
                 nbd+unix:///?socket=/run/flashwise.sock\n\
                 flashwise status\n\
                 flashwise detach --backend /dev/sdb --flash /dev/nvme0n1",
            ),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            Entry("STATE_DIRECTORY", "The server's state directory. systemd sets it."),
            Entry(
                "RUNTIME_DIRECTORY, XDG_RUNTIME_DIR",
                "Where the socket of the management API is, if the configuration names none.",
            ),
            Entry("COLUMNS", "Width of tables and messages."),
        ],
    ),
    (
        "FILES",
        &[
            Entry("/etc/flashwise/flashwise.toml", "Configuration of the server, see flashwise.toml(5)."),
            Entry("/usr/share/doc/flashwise", "Documentation, examples, alert rules and a dashboard."),
        ],
    ),
    ("EXIT STATUS", EXIT_STATUS),
    ("SEE ALSO", &[Plain("flashwise-simulate(1), flashwise-serve(8), flashwise.toml(5)")]),
];

/// The end of the page of other commands.
pub const COMMAND: &[Section] = &[("EXIT STATUS", EXIT_STATUS), ("SEE ALSO", &[Plain("flashwise(1)")])];

/// The end of flashwise-serve(8).
pub const SERVER: &[Section] = &[
    (
        "SIGNALS",
        &[
            Entry(
                "SIGTERM, SIGINT",
                "Answer received requests, flush, and exit. A second one exits at once, which is as safe as a power \
                 failure.",
            ),
            Entry("SIGHUP", "Reload TLS files, tokens and the log level."),
        ],
    ),
    (
        "EXAMPLES",
        &[
            Plain("Serve the volumes of a configuration, after a check:"),
            Commands(
                "flashwise serve --check-config /etc/flashwise/flashwise.toml\nflashwise serve \
                 /etc/flashwise/flashwise.toml",
            ),
            Plain("Serve one disk behind an NVMe drive, and use it as /dev/nbd0:"),
            Commands(
                "flashwise serve --backend /dev/sdb --flash /dev/nvme0n1 --listen \
                 nbd+unix:///?socket=/run/flashwise.sock\n\
                 nbd-client -b 4096 -unix /run/flashwise.sock /dev/nbd0",
            ),
            Plain("Take the cache out again, with the server stopped. The disk then has all data:"),
            Commands("flashwise detach --backend /dev/sdb --flash /dev/nvme0n1"),
            Plain("Start after the configuration no longer names a lost flash. Its unwritten data is lost too:"),
            Commands("flashwise serve /etc/flashwise/flashwise.toml --discard-cache data"),
        ],
    ),
    (
        "FILES",
        &[
            Entry("/etc/flashwise/flashwise.toml", "The configuration, see flashwise.toml(5)."),
            Entry("/etc/flashwise/token", "The token of the management API, which the package creates."),
            Entry(
                "/var/lib/flashwise",
                "The state directory. UUID.json is the record of the cache of a backend without extended attributes. \
                 pools.json lists \
                 pools that a running server created, assignments.json the exports that are reserved for clients. \
                 history.redb has the \
                 figures of the page. A lost record makes it impossible to detect an outdated flash.",
            ),
            Entry("/run/flashwise/api.sock", "The socket of the management API, for root and the server's user."),
            Entry(
                "user.flashwise.cache",
                "An extended attribute of a backend that is a file: the record of its cache. Copies of the file need \
                 it.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            Entry("0", "A signal stopped the server, and everything is flushed."),
            Entry(
                "1",
                "A temporary error: a device is in use, an I/O error, a port in use. systemd restarts the server.",
            ),
            Entry(
                "2",
                "A permanent error: a bad configuration, or a cache of another backend or size. systemd does not \
                 restart the server.",
            ),
        ],
    ),
    (
        "SEE ALSO",
        &[Plain(
            "flashwise(1), flashwise.toml(5), flashwise-status(1), flashwise-detach(1), flashwise-attach(1), \
             flashwise-check(1), nbd-client(8)",
        )],
    ),
];

#[cfg(all(test, feature = "serve"))]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The commands of the examples have only options that exist.
    #[test]
    fn examples_are_valid_command_lines() {
        let mut count = 0;
        for (_, texts) in OVERVIEW.iter().chain(SERVER) {
            for text in *texts {
                let Commands(lines) = text else { continue };
                for line in lines.lines().filter(|line| line.starts_with("flashwise ")) {
                    let parsed = crate::Arguments::command().try_get_matches_from(line.split(' '));
                    assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                    count += 1;
                }
            }
        }
        assert!(count > 7, "{count} examples");
    }
}
