//! The commands that serve a live cache, manage it and look after its disks. Built with the feature `serve`.

mod api;
mod attach;
mod capture;
mod check;
mod demo;
mod detach;
mod disks;
mod manage;
mod pair;
mod pool;
mod salvage;
mod serve;
mod status;
mod volume;
mod wipe;

use clap::Subcommand;

/// Commands that run a cache, manage it and look after its disks.
#[derive(Debug, Subcommand)]
pub enum Live {
    Serve(Box<serve::Serve>),
    Status(status::Status),
    Flush(manage::Flush),
    Page(manage::Page),
    Set(manage::Set),
    Disks(disks::Disks),
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    #[command(subcommand)]
    Disk(pool::DiskCommand),
    Detach(detach::Detach),
    Attach(attach::Attach),
    Check(check::Check),
    Wipe(wipe::Wipe),
    Demo(demo::Demo),
    Capture(capture::Capture),
}

impl Live {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Live::Serve(command) => command.run(),
            Live::Status(command) => command.run(),
            Live::Flush(command) => command.run(),
            Live::Page(command) => command.run(),
            Live::Set(command) => command.run(),
            Live::Disks(command) => command.run(),
            Live::Volume(command) => command.run(),
            Live::Pool(command) => command.run(),
            Live::Disk(command) => command.run(),
            Live::Detach(command) => command.run(),
            Live::Attach(command) => command.run(),
            Live::Check(command) => command.run(),
            Live::Wipe(command) => command.run(),
            Live::Demo(command) => command.run(),
            Live::Capture(command) => command.run(),
        }
    }
}
