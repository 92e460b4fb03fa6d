//! How the things that can be named on the command line are listed: policies and trace formats.

use std::io::{self, Write};

use flashwise_core::options::Parameter;

/// Writes a name, what it stands for and where it comes from, and what can be set.
pub fn write(mut out: impl Write, name: &str, title: &str, source: &str, parameters: &[Parameter]) -> io::Result<()> {
    writeln!(out, "{name}  {title}")?;
    writeln!(out, "    {source}")?;
    for parameter in parameters {
        writeln!(out, "    {}={}  {}", parameter.name, parameter.default, parameter.meaning)?;
        writeln!(out, "        {}", parameter.kind)?;
    }
    Ok(())
}
