//! The page of figures is what the table of columns says, and every figure says what it means.

use std::path::Path;

use flashwise_sim::results::page;

/// With `FLASHWISE_WRITE_DOCS` set, the page is written.
#[test]
fn the_page_of_figures_is_the_table_of_columns() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures.md");
    if std::env::var_os("FLASHWISE_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(kept == page(), "docs/figures.md is not what the columns say; FLASHWISE_WRITE_DOCS=1 cargo test writes it");
    for line in kept.lines().filter(|line| line.starts_with("| `")) {
        let meaning = line.rsplit('|').nth(1).unwrap().trim();
        assert!(meaning.len() > 10 && meaning.ends_with('.') && !meaning.contains("..."), "{line}");
    }
}
