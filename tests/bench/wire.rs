//! The WebSocket framing a load generator needs.
//!
//! The generator shares the machine's cores with what it measures, so it does as little as the
//! protocol lets it: it walks frame headers without copying payloads, and it masks with zeroes.

use anyhow::{Result, bail, ensure};

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;

/// A part of a text message, as far as it has come.
pub(crate) struct Piece<'a> {
    pub(crate) payload: &'a [u8],
    /// The message starts with this piece.
    pub(crate) begins: bool,
    /// The message is complete with this piece.
    pub(crate) ends: bool,
}

/// Follows the frames of one direction of a socket, however the bytes are cut.
#[derive(Default)]
pub(crate) struct FrameWalker {
    header: [u8; 10],
    header_len: usize,
    /// Payload bytes of the present frame still to come.
    payload_left: u64,
    inside_frame: bool,
    opcode: u8,
    is_last_frame: bool,
    /// Nothing of the present message has been handed out yet.
    at_message_start: bool,
    control: Vec<u8>,
}

impl FrameWalker {
    /// Hands out the text payloads in `bytes`. A close frame is an error: nobody here expects one.
    pub(crate) fn walk(&mut self, mut bytes: &[u8], mut each: impl FnMut(Piece)) -> Result<()> {
        while !bytes.is_empty() {
            if !self.inside_frame {
                let used = self.take_header(bytes)?;
                bytes = &bytes[used..];
                if !self.inside_frame {
                    return Ok(());
                }
            }
            let here = bytes.len().min(usize::try_from(self.payload_left).unwrap_or(usize::MAX));
            let (payload, rest) = bytes.split_at(here);
            bytes = rest;
            self.payload_left -= here as u64;
            let frame_ends = self.payload_left == 0;
            self.inside_frame = !frame_ends;
            if matches!(self.opcode, TEXT | CONTINUATION) {
                let ends = frame_ends && self.is_last_frame;
                each(Piece { payload, begins: self.at_message_start, ends });
                self.at_message_start = false;
            } else {
                self.take_control(payload, frame_ends)?;
            }
        }
        Ok(())
    }

    /// Reads the frame header as far as it is there. Returns how many bytes of it were.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut used = 0;
        while let Some(&byte) = bytes.get(used) {
            self.header[self.header_len] = byte;
            self.header_len += 1;
            used += 1;
            let wanted = if self.header_len < 2 { 2 } else { header_bytes(self.header[1])? };
            if self.header_len == wanted {
                self.begin_frame();
                break;
            }
        }
        Ok(used)
    }

    fn begin_frame(&mut self) {
        self.payload_left = match self.header[1] {
            126 => u64::from(u16::from_be_bytes([self.header[2], self.header[3]])),
            127 => self.header[2..10].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
            short => u64::from(short),
        };
        self.opcode = self.header[0] & 0x0f;
        self.is_last_frame = self.header[0] & 0x80 != 0;
        self.at_message_start |= self.opcode == TEXT;
        self.header_len = 0;
        self.inside_frame = true;
    }

    fn take_control(&mut self, payload: &[u8], frame_ends: bool) -> Result<()> {
        self.control.extend_from_slice(payload);
        if frame_ends {
            let control = std::mem::take(&mut self.control);
            if self.opcode == CLOSE {
                bail!("the peer closed the socket: {}", describe_close(&control));
            }
        }
        Ok(())
    }
}

fn header_bytes(length_byte: u8) -> Result<usize> {
    ensure!(length_byte & 0x80 == 0, "a server must not mask its frames");
    Ok(match length_byte {
        126 => 4,
        127 => 10,
        _ => 2,
    })
}

fn describe_close(payload: &[u8]) -> String {
    match payload {
        [high, low, reason @ ..] => {
            format!("{} {}", u16::from_be_bytes([*high, *low]), String::from_utf8_lossy(reason))
        }
        _ => "without a code".into(),
    }
}

/// Appends one client text frame. The mask is zero, which is legal and costs this side nothing.
pub(crate) fn push_text_frame(out: &mut Vec<u8>, text: &str) {
    const MASKED: u8 = 0x80;
    out.push(0x80 | TEXT);
    match text.len() {
        length @ 0..126 => out.push(MASKED | length as u8),
        length @ 126..65_536 => {
            out.push(MASKED | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(MASKED | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(text.as_bytes());
}

/// Turns pieces into whole messages, copying only those that came in parts.
#[derive(Default)]
pub(crate) struct Assembler {
    partial: Vec<u8>,
}

impl Assembler {
    /// Takes the next piece; calls `each` if a message is complete with it.
    pub(crate) fn take(&mut self, piece: &Piece, each: impl FnOnce(&[u8])) {
        if piece.begins && piece.ends {
            return each(piece.payload);
        }
        self.partial.extend_from_slice(piece.payload);
        if piece.ends {
            each(&self.partial);
            self.partial.clear();
        }
    }
}
