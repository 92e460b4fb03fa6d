//! Parts of a flash cache and its DRAM, except algorithm and size.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 5: erase units of 2 MiB, DRAM of 5 % of the flash, which includes a
//! write buffer of 4 erase units, and 7 % over-provisioning.

use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::quantity::ByteSize;

use super::EnduranceError;
use crate::cache_settings::{RAM_FOR_WEAR, Ram, SPARE};
use flashwise_device::flash::{DeviceError, FtlConfig, GcPlacement, Victim};

/// Erase units of a write buffer, if this many fit.
pub const WRITE_BUFFERS: u32 = 4;

/// Settings shared by all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// RAM in front of the flash, the same for all algorithms. An algorithm's write buffer or open erase units come
    /// first, and the rest is its read cache. If these need more than the RAM, they get it: see
    /// [`Geometry::ram_used_blocks`].
    pub ram: Ram,
    /// Erase units of the write buffer; by default [`WRITE_BUFFERS`], or as many as fit.
    pub write_buffers: Option<u32>,
    /// Size of an erase unit.
    pub erase_unit_bytes: u64,
    /// Flash beyond the size of the cache, as a share of it; rounded up to whole erase units.
    pub spare: f64,
    /// Choice of the erase unit that a conventional SSD collects.
    pub victim: Victim,
    /// Placement of valid pages that it copies.
    pub gc_placement: GcPlacement,
    /// Erase units that it keeps free.
    pub reserve_units: u32,
    /// Its static wear levelling: see [`FtlConfig::wear_levelling`].
    pub wear_levelling: Option<u32>,
    /// True if online replacement policies trim evicted blocks.
    pub online_trim: bool,
    /// Random seed.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        let ftl = FtlConfig::new(1, 1, SPARE);
        Settings {
            ram: RAM_FOR_WEAR,
            write_buffers: None,
            erase_unit_bytes: 2 << 20,
            spare: ftl.spare,
            victim: ftl.victim,
            gc_placement: ftl.gc_placement,
            reserve_units: ftl.reserve_units,
            wear_levelling: ftl.wear_levelling,
            online_trim: false,
            seed: ftl.seed,
        }
    }
}

/// Buffers in RAM before flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// None: each block is written at once.
    None,
    /// A write buffer of this many erase units; by default those of the settings.
    Units(Option<u32>),
}

/// The parts of a cache. All algorithms of a size have the same flash and are given the same RAM.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// Blocks that the flash cache holds, those in write buffers included.
    pub capacity_blocks: usize,
    /// RAM given.
    pub ram_blocks: u64,
    /// Blocks of the read cache: the RAM that the buffer leaves.
    pub read_cache_blocks: usize,
    /// Blocks of the write buffer, or of the erase units that fill up in RAM. Their contents are a part of
    /// `capacity_blocks`.
    pub buffer_blocks: u64,
    /// Erase units of the write buffer; 0 if there is none.
    pub write_buffers: u32,
    /// Pages of an erase unit.
    pub unit_pages: u32,
    /// Erase units of the flash, including spare ones.
    pub units: u32,
    /// The conventional SSD.
    pub ftl: FtlConfig,
}

impl Geometry {
    /// Returns the geometry with a buffer of this many blocks; the rest of the RAM is read cache.
    pub(super) fn with_buffer(self, buffer_blocks: u64) -> Geometry {
        let read_cache_blocks = self.ram_blocks.saturating_sub(buffer_blocks);
        Geometry { buffer_blocks, read_cache_blocks: usize::try_from(read_cache_blocks).unwrap_or(usize::MAX), ..self }
    }

    /// Blocks of RAM in use: the configured number, or more if the buffer needs more.
    pub fn ram_used_blocks(&self) -> u64 {
        self.read_cache_blocks as u64 + self.buffer_blocks
    }
}

impl Settings {
    /// Returns the parts of a cache of `capacity_blocks`, given by the user as `size`, with these `buffers` in RAM.
    pub fn geometry(
        &self,
        size: &str,
        capacity_blocks: usize,
        block_size_bytes: u64,
        buffers: Buffers,
    ) -> Result<Geometry, EnduranceError> {
        let unit_pages = self.unit_pages(block_size_bytes)?;
        if unit_pages as usize > capacity_blocks {
            let [unit, flash] =
                [u64::from(unit_pages), capacity_blocks as u64].map(|blocks| ByteSize::new(blocks * block_size_bytes));
            return Err(EnduranceError::UnitLargerThanCache { unit, size: size.to_owned(), flash });
        }
        let ftl = self.ssd(size, capacity_blocks, unit_pages)?;
        let device = |why| EnduranceError::Device { size: size.to_owned(), why };
        let units = ftl.units().map_err(device)?;
        let ram_blocks = self.ram_blocks(capacity_blocks, block_size_bytes);
        let write_buffers = match buffers {
            Buffers::None => 0,
            Buffers::Units(asked) => {
                let asked = asked.or(self.write_buffers);
                self.write_buffers(size, asked, ram_blocks, unit_pages, units, block_size_bytes)?
            }
        };
        let geometry = Geometry {
            capacity_blocks,
            ram_blocks,
            read_cache_blocks: 0,
            buffer_blocks: 0,
            write_buffers,
            unit_pages,
            units,
            ftl,
        };
        Ok(geometry.with_buffer(u64::from(write_buffers) * u64::from(unit_pages)))
    }

    /// Returns the conventional SSD below the log of a whole cache. The log has `log_pages` pages of a block, and a
    /// policy that may hold `capacity_blocks`. Its buffers have `read_buffer_blocks` and `write_buffer_blocks`.
    pub fn log_geometry(
        &self,
        size: &str,
        log_pages: u32,
        capacity_blocks: usize,
        read_buffer_blocks: u32,
        write_buffer_blocks: u32,
    ) -> Result<Geometry, EnduranceError> {
        let unit_pages = self.unit_pages(BLOCK_BYTES as u64)?;
        let ftl = self.ssd(size, log_pages as usize, unit_pages)?;
        let units = ftl.units().map_err(|why| EnduranceError::Device { size: size.to_owned(), why })?;
        Ok(Geometry {
            capacity_blocks,
            ram_blocks: u64::from(read_buffer_blocks) + u64::from(write_buffer_blocks),
            read_cache_blocks: read_buffer_blocks as usize,
            buffer_blocks: write_buffer_blocks.into(),
            write_buffers: 0,
            unit_pages,
            units,
            ftl,
        })
    }

    /// Returns a conventional SSD of this many pages of a block.
    fn ssd(&self, size: &str, pages: usize, unit_pages: u32) -> Result<FtlConfig, EnduranceError> {
        let most = u64::from(u32::MAX) - 1;
        let too_large = |_| EnduranceError::Device {
            size: size.to_owned(),
            why: DeviceError::TooLarge { what: "pages", found: pages as u64, most },
        };
        Ok(FtlConfig {
            logical_pages: u32::try_from(pages).map_err(too_large)?,
            unit_pages,
            spare: self.spare,
            victim: self.victim,
            gc_placement: self.gc_placement,
            reserve_units: self.reserve_units,
            wear_levelling: self.wear_levelling,
            seed: self.seed,
        })
    }

    /// Returns the parts of a cache whose erase units are blocks, which needs no buffer.
    pub fn unit_caching_geometry(&self, capacity_blocks: usize, block_size_bytes: u64) -> Geometry {
        let units = u32::try_from(capacity_blocks).unwrap_or(u32::MAX);
        let geometry = Geometry {
            capacity_blocks,
            ram_blocks: self.ram_blocks(capacity_blocks, block_size_bytes),
            read_cache_blocks: 0,
            buffer_blocks: 0,
            write_buffers: 0,
            unit_pages: 1,
            units,
            ftl: FtlConfig::new(units, 1, 0.0),
        };
        geometry.with_buffer(0)
    }

    fn unit_pages(&self, block_size_bytes: u64) -> Result<u32, EnduranceError> {
        let (unit, block) = (self.erase_unit_bytes, block_size_bytes);
        let unit_pages = u32::try_from(unit / block).ok();
        let unit_pages = unit_pages.filter(|&pages| pages > 0 && pages < 1 << 24 && unit.is_multiple_of(block));
        unit_pages.ok_or(EnduranceError::EraseUnit { found: ByteSize::new(unit), block: ByteSize::new(block) })
    }

    fn ram_blocks(&self, capacity_blocks: usize, block_size_bytes: u64) -> u64 {
        ram_blocks(self.ram, capacity_blocks, block_size_bytes)
    }

    fn has_ram(&self) -> bool {
        !matches!(self.ram, Ram::Bytes(0)) && self.ram != Ram::Share(0.0)
    }

    /// Returns the number of write buffers: as requested, or as many as fit.
    fn write_buffers(
        &self,
        size: &str,
        asked: Option<u32>,
        ram_blocks: u64,
        unit_pages: u32,
        units: u32,
        block_size_bytes: u64,
    ) -> Result<u32, EnduranceError> {
        // At least one erase unit holds blocks on flash.
        let fit_flash = units - 1;
        let fit_ram = ram_blocks / u64::from(unit_pages);
        let fit_ram = if self.has_ram() { fit_ram.min(u64::from(u32::MAX)) as u32 } else { u32::MAX };
        let [unit, ram] =
            [u64::from(unit_pages), ram_blocks].map(|blocks| ByteSize::new(blocks.saturating_mul(block_size_bytes)));
        let size = size.to_owned();
        match asked {
            _ if fit_ram == 0 => Err(EnduranceError::RamBelowWriteBuffer { size, ram, unit }),
            None => Ok(WRITE_BUFFERS.min(fit_ram).min(fit_flash)),
            Some(0) => Err(EnduranceError::NoWriteBuffer),
            Some(found) if found > fit_ram => {
                Err(EnduranceError::WriteBuffersAndRam { size, found, unit, ram, most: fit_ram })
            }
            Some(found) if found > fit_flash => {
                Err(EnduranceError::WriteBuffersAndFlash { size, found, units, most: fit_flash })
            }
            Some(found) => Ok(found),
        }
    }
}

/// Blocks of the RAM in front of a cache of `capacity_blocks`.
pub(crate) fn ram_blocks(ram: Ram, capacity_blocks: usize, block_size_bytes: u64) -> u64 {
    match ram {
        Ram::Bytes(bytes) => bytes / block_size_bytes,
        // 5 % of 100 blocks are 5 blocks, despite rounding.
        Ram::Share(share) => (capacity_blocks as f64 * share + 1e-6) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_RAM: Settings = Settings {
        ram: Ram::Bytes(0),
        write_buffers: None,
        erase_unit_bytes: 64 << 10,
        spare: 0.07,
        victim: Victim::Greedy,
        gc_placement: GcPlacement::Own,
        reserve_units: 1,
        wear_levelling: None,
        online_trim: false,
        seed: 0,
    };

    fn geometry(settings: &Settings, capacity_blocks: usize, buffers: Option<u32>) -> Result<Geometry, String> {
        let buffers = Buffers::Units(buffers);
        settings.geometry("10%", capacity_blocks, 4096, buffers).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_the_paper() {
        // 1 GiB of flash: 512 units of 2 MiB; 7 % of them are 35.84. 5 % of DRAM are 13107 blocks, including 4 units of
        // write buffer.
        let found = geometry(&Settings::default(), 1 << 18, None).unwrap();
        assert_eq!((found.units, found.unit_pages, found.write_buffers), (548, 512, 4));
        assert_eq!((found.read_cache_blocks, found.buffer_blocks), (13107 - 2048, 2048));
        // Without a buffer, the read cache has all of the RAM.
        let in_place = Settings::default().geometry("10%", 1 << 18, 4096, Buffers::None).unwrap();
        assert_eq!((in_place.read_cache_blocks, in_place.buffer_blocks, in_place.write_buffers), (13107, 0, 0));
        let of_blocks = Settings::default().unit_caching_geometry(1 << 18, 4096);
        assert_eq!((of_blocks.read_cache_blocks, of_blocks.ram_used_blocks()), (13107, 13107));
        // Buffers larger than the RAM exist nevertheless, and are reported.
        let open = in_place.with_buffer(14_000);
        assert_eq!((open.ram_blocks, open.read_cache_blocks, open.ram_used_blocks()), (13107, 0, 14_000));
    }

    #[test]
    fn write_buffers_are_a_part_of_the_dram_if_there_is_any() {
        let with_ram = |blocks: u64| Settings { ram: Ram::Bytes(blocks * 4096), ..NO_RAM };
        let parts = |settings: &Settings, buffers| {
            let geometry = geometry(settings, 1000, buffers).unwrap();
            (geometry.read_cache_blocks, geometry.write_buffers)
        };
        assert_eq!(parts(&NO_RAM, None), (0, 4));
        assert_eq!(parts(&NO_RAM, Some(8)), (0, 8));
        assert_eq!(parts(&with_ram(100), None), (36, 4));
        assert_eq!(parts(&with_ram(40), None), (8, 2));
        assert_eq!(parts(&with_ram(100), Some(6)), (4, 6));
        assert_eq!(parts(&Settings { write_buffers: Some(1), ..with_ram(100) }, None), (84, 1));
        // 1000 blocks of flash and 7 % make 67 units.
        assert_eq!(
            geometry(&NO_RAM, 1000, Some(67)).unwrap_err(),
            "size '10%': found 67 write buffers, expected at most 66: the flash has 67 erase units"
        );
    }

    #[test]
    fn impossible_parts_are_refused_with_possible_ones() {
        let errors = [
            geometry(&Settings { erase_unit_bytes: 6000, ..NO_RAM }, 1000, None),
            geometry(&NO_RAM, 15, None),
            geometry(&NO_RAM, 160, None),
            geometry(&Settings { ram: Ram::Share(0.01), ..NO_RAM }, 1000, None),
            geometry(&Settings { ram: Ram::Share(0.05), ..NO_RAM }, 1000, Some(4)),
            geometry(&NO_RAM, 1000, Some(0)),
        ]
        .map(Result::unwrap_err);
        let expected = [
            "erase unit: found 6KB, expected a multiple of the trace's blocks of 4KiB, below 2^24 of them",
            "size '10%' is 60KiB of flash, less than one erase unit of 64KiB; make the cache larger or erase units \
             smaller",
            "size '10%': spare flash of 7",
            "size '10%': DRAM of 40KiB has no room for a write buffer of one erase unit of 64KiB. Use more DRAM, \
             none, or smaller erase \
             units",
            "size '10%': found 4 write buffers of 64KiB, expected at most 3: they are a part of the DRAM of 200KiB",
            "write buffers: found 0, expected at least 1",
        ];
        for (error, expected) in errors.iter().zip(expected) {
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(errors[2].contains("is 1 erase units"), "{}", errors[2]);
    }
}
