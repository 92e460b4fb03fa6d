//! Tests in a process of their own: they measure its memory, or use up one of its resources.

use std::any::type_name;
use std::process::Command;

/// Set in a process that runs one test.
const ALONE: &str = "FLASHWISE_TEST_ALONE";

/// Runs the calling test in a process of its own. `body` must be a closure in that test, because its type name has the
/// test's name.
pub fn alone<F: FnOnce()>(body: F) {
    let path = type_name::<F>();
    let (_, inside) = path.split_once("::").expect("a test is inside a crate");
    let test = inside.split("::{{").next().unwrap_or(inside);
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().expect("the program is known"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, "1");
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    println!("{out}{err}");
    assert!(output.status.success() && out.contains("1 passed"), "{test} fails in a process of its own");
}
