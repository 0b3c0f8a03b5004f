//! A body as it arrives: counted by Content-Length, or in chunks.
//!
//! Bytes in, bytes out, no I/O. Strict where leniency lets two readers disagree on where a request ends. Never reserves
//! what is only declared, never holds more than the limit, never looks at what the bytes mean.

use super::parse::{Fault, is_token, is_value};

/// The longest chunk extension. Nobody sends any; what is read is dropped.
const EXTENSION_BYTES: usize = 256;
/// Trailers are read to find the end of the request, and dropped.
const TRAILER_BYTES: usize = 4096;
/// Hex digits of a chunk's size: enough for a u64, zeros in front included.
const SIZE_DIGITS: usize = 16;

/// Where a body is on its way.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// So many bytes are still to come.
    Counted(u64),
    /// Somewhere in a chunked body.
    Chunked(Chunk),
}

/// The place in a chunked body that the next byte belongs to.
#[derive(Clone, Debug)]
pub(super) enum Chunk {
    Size { value: u64, digits: usize },
    Extension { value: u64, length: usize },
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart { length: usize },
    TrailerName { length: usize },
    TrailerValue { length: usize },
    TrailerLf { length: usize },
    EndLf,
}

impl Body {
    pub(super) fn chunked() -> Body {
        Body::Chunked(Chunk::Size { value: 0, digits: 0 })
    }

    /// Takes what belongs to this body from the front of `input` and adds the content to `out`.
    /// Returns the bytes taken, and whether the body is complete.
    pub(super) fn read(&mut self, input: &[u8], out: &mut Vec<u8>, limit: u64) -> Result<(usize, bool), Fault> {
        match self {
            Body::Counted(left) => {
                let take = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                append(out, &input[..take], limit);
                *left -= take as u64;
                Ok((take, *left == 0))
            }
            Body::Chunked(chunk) => read_chunks(chunk, input, out, limit),
        }
    }
}

/// Grows by doubling, but never beyond the limit.
fn append(out: &mut Vec<u8>, bytes: &[u8], limit: u64) {
    let needed = out.len() + bytes.len();
    if needed > out.capacity() {
        let doubled = out.capacity().saturating_mul(2).min(usize::try_from(limit).unwrap_or(usize::MAX));
        out.reserve_exact(needed.max(doubled) - out.len());
    }
    out.extend_from_slice(bytes);
}

fn read_chunks(chunk: &mut Chunk, input: &[u8], out: &mut Vec<u8>, limit: u64) -> Result<(usize, bool), Fault> {
    let mut at = 0;
    while let Some(&byte) = input.get(at) {
        if let Chunk::Data { left } = chunk {
            let take = (input.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
            append(out, &input[at..at + take], limit);
            at += take;
            *left -= take as u64;
            if *left == 0 {
                *chunk = Chunk::DataCr;
            }
            continue;
        }
        at += 1;
        *chunk = match (&*chunk, byte) {
            (&Chunk::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == SIZE_DIGITS {
                    return Err(Fault::ChunkSize);
                }
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                Chunk::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (&Chunk::Size { value, digits }, b'\r' | b';') if digits > 0 => {
                if value > limit.saturating_sub(out.len() as u64) {
                    return Err(Fault::TooLarge);
                }
                if byte == b'\r' { Chunk::SizeLf { value } } else { Chunk::Extension { value, length: 0 } }
            }
            (Chunk::Size { .. }, _) => return Err(Fault::ChunkSize),
            (&Chunk::Extension { value, .. }, b'\r') => Chunk::SizeLf { value },
            (&Chunk::Extension { value, length }, _) if is_value(byte) && length < EXTENSION_BYTES => {
                Chunk::Extension { value, length: length + 1 }
            }
            (Chunk::Extension { .. }, _) => return Err(Fault::ChunkExtension),
            (Chunk::SizeLf { value: 0 }, b'\n') => Chunk::TrailerStart { length: 0 },
            (&Chunk::SizeLf { value }, b'\n') => Chunk::Data { left: value },
            (Chunk::SizeLf { .. }, _) => return Err(Fault::ChunkSize),
            (Chunk::DataCr, b'\r') => Chunk::DataLf,
            (Chunk::DataLf, b'\n') => Chunk::Size { value: 0, digits: 0 },
            (Chunk::DataCr | Chunk::DataLf | Chunk::Data { .. }, _) => return Err(Fault::ChunkEnd),
            (Chunk::TrailerStart { .. }, b'\r') => Chunk::EndLf,
            (&Chunk::TrailerStart { length } | &Chunk::TrailerName { length }, _) if is_token(byte) => {
                Chunk::TrailerName { length: bounded(length)? }
            }
            (&Chunk::TrailerName { length }, b':') => Chunk::TrailerValue { length: bounded(length)? },
            (&Chunk::TrailerValue { length }, b'\r') => Chunk::TrailerLf { length: bounded(length)? },
            (&Chunk::TrailerValue { length }, _) if is_value(byte) => Chunk::TrailerValue { length: bounded(length)? },
            (&Chunk::TrailerLf { length }, b'\n') => Chunk::TrailerStart { length: bounded(length)? },
            (Chunk::EndLf, b'\n') => return Ok((at, true)),
            _ => return Err(Fault::Trailer),
        };
    }
    Ok((at, false))
}

fn bounded(length: usize) -> Result<usize, Fault> {
    if length < TRAILER_BYTES { Ok(length + 1) } else { Err(Fault::Trailer) }
}
