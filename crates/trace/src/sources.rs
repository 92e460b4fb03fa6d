//! The files of a trace: one, or several that are merged by time.
//!
//! `disk0.csv + disk1.csv` names two files, and a pattern such as `msr/*.csv` all matching files, in order of their
//! names. They are merged into one trace by time. An existing file with the whole name takes precedence. After an
//! archive, the pattern matches the files in it: `msr.tar.gz/*.csv`.

use std::path::{Path, PathBuf};

use crate::error::TraceError;
use crate::input::{members, split_at_archive};

/// The separator between the names of merged files.
const AND: &str = " + ";

/// The maximum number of merged files: each is read by its own threads.
pub const SOURCES_MAX: usize = 256;

/// Returns the files of the trace named `path`, at least one.
///
/// # Errors
/// An invalid pattern or one without matches, and more than [`SOURCES_MAX`] files.
pub fn sources(path: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let Some(name) = path.to_str().filter(|_| !path.exists()) else { return Ok(vec![path.to_owned()]) };
    if name.starts_with("s3://") {
        let found = "an object in S3".to_owned();
        let expected = "a file; only `flashwise sweep` reads S3, if it is built with the feature s3".to_owned();
        return Err(TraceError::Sources { path: name.to_owned(), found, expected });
    }
    let mut files = Vec::new();
    for part in parts(name) {
        match is_pattern(part) && !Path::new(part).exists() {
            true => files.extend(fitting(part)?),
            false => files.push(PathBuf::from(part)),
        }
    }
    if files.len() > SOURCES_MAX {
        let found = format!("{} files", files.len());
        let expected = format!("at most {SOURCES_MAX} to merge at once");
        return Err(TraceError::Sources { path: name.to_owned(), found, expected });
    }
    Ok(files)
}

/// Returns the names that are merged in `name`: one if there is no +.
pub fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(AND).map(str::trim)
}

/// Returns the traces that `name` stands for, each by itself: all matches of a pattern. Other names, existing files and
/// names merged with + stand for themselves.
///
/// # Errors
/// An invalid pattern or one without matches.
pub fn each(name: &str) -> Result<Vec<PathBuf>, TraceError> {
    let is_one = name.contains(AND) || !is_pattern(name) || Path::new(name).exists();
    if is_one { Ok(vec![PathBuf::from(name)]) } else { fitting(name) }
}

/// Returns the files that contain the bytes of the trace named `path`: its sources, or the archives that contain them.
///
/// # Errors
/// Those of [`sources`].
pub fn files(path: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let mut files = Vec::new();
    for source in sources(path)? {
        let file = match split_at_archive(&source) {
            Some((archive, _)) if !source.exists() => archive.to_owned(),
            _ => source,
        };
        if !files.contains(&file) {
            files.push(file);
        }
    }
    Ok(files)
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

fn fitting(pattern: &str) -> Result<Vec<PathBuf>, TraceError> {
    let refused = |found: String| TraceError::Sources {
        path: pattern.to_owned(),
        found,
        expected: "files that fit the pattern".to_owned(),
    };
    if let Some((archive, pattern)) = split_at_archive(Path::new(pattern)) {
        let pattern = pattern.to_string_lossy();
        let fits = glob::Pattern::new(&pattern).map_err(|error| refused(format!("an invalid pattern ({error})")))?;
        // Wildcards do not cross folders, as in directories.
        let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        let mut found = members(archive)?;
        found.retain(|name| fits.matches_with(name.trim_start_matches("./"), options));
        found.sort();
        return match found.is_empty() {
            true => Err(refused("none in the archive".to_owned())),
            false => Ok(found.into_iter().map(|name| archive.join(name)).collect()),
        };
    }
    let paths = glob::glob(pattern).map_err(|error| refused(format!("an invalid pattern ({error})")))?;
    let found: Result<Vec<PathBuf>, _> = paths.collect();
    let mut files =
        found.map_err(|error| TraceError::Io { path: error.path().display().to_string(), source: error.into() })?;
    files.retain(|file| !file.is_dir());
    if files.is_empty() { Err(refused("none".to_owned())) } else { Ok(files) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_files_are_named_by_a_sum_and_by_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.csv", "a.csv", "c + d.csv", "e*.csv", "e1.csv"] {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::create_dir(at("f.csv")).unwrap();
        let found = |name: &str| {
            let files = sources(&at(name)).unwrap();
            files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found("b.csv"), ["b.csv"]);
        assert_eq!(found("not there"), ["not there"]);
        assert_eq!(found("[ab].csv"), ["a.csv", "b.csv"]);
        assert_eq!(found("c + d.csv"), ["c + d.csv"], "it is there");
        let object = sources(Path::new("s3://traces/*.csv")).unwrap_err().to_string();
        assert_eq!(
            object,
            "s3://traces/*.csv: found an object in S3, expected a file; only `flashwise sweep` reads S3, if it is \
             built with the feature s3"
        );
        assert_eq!(found("e*.csv"), ["e*.csv"], "it is there");
        let sum = format!("b.csv + {} + {}", at("a.csv").display(), at("e?.csv").display());
        assert_eq!(found(&sum), ["b.csv", "a.csv", "e*.csv", "e1.csv"]);
        let refused = |name: &str| sources(&at(name)).unwrap_err().to_string();
        assert!(refused("g*").ends_with("/g*: found none, expected files that fit the pattern"), "{}", refused("g*"));
        assert!(refused("a[").contains("found an invalid pattern"), "{}", refused("a["));
        let mut archive = tar::Builder::new(std::fs::File::create(at("all.tar")).unwrap());
        for name in ["msr/b.csv", "msr/a.csv", "msr/old/c.csv", "notes.txt"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(3);
            archive.append_data(&mut header, name, "1,2".as_bytes()).unwrap();
        }
        archive.finish().unwrap();
        assert_eq!(found("all.tar/msr/*.csv"), ["a.csv", "b.csv"], "in order of their names");
        assert_eq!(found("all.tar/**/*.csv + b.csv"), ["a.csv", "b.csv", "c.csv", "b.csv"]);
        assert!(
            refused("all.tar/*.csv")
                .ends_with("all.tar/*.csv: found none in the archive, expected files that fit the pattern")
        );
        assert!(refused("b.csv/*").contains("b.csv"), "{}", refused("b.csv/*"));
        let names = |found: Vec<PathBuf>| {
            found
                .iter()
                .map(|file| file.strip_prefix(folder.path()).unwrap_or(file).display().to_string())
                .collect::<Vec<_>>()
        };
        let each = |name: &str| names(each(at(name).to_str().unwrap()).unwrap());
        assert_eq!(each("all.tar/msr/*.csv"), ["all.tar/msr/a.csv", "all.tar/msr/b.csv"]);
        assert_eq!(
            (each("a.csv + b*"), each("e*.csv"), each("[ab].csv").len()),
            (vec!["a.csv + b*".to_owned()], vec!["e*.csv".to_owned()], 2)
        );
        let files = |name: &str| names(files(&at(name)).unwrap());
        assert_eq!(files("all.tar/**/*.csv"), ["all.tar"], "once");
        assert_eq!(files(&format!("b.csv + {}", at("all.tar/msr/a.csv").display())), ["b.csv", "all.tar"]);
        let many = vec!["a.csv"; SOURCES_MAX + 1].join(AND);
        assert!(refused(&many).ends_with("found 257 files, expected at most 256 to merge at once"));
    }
}
