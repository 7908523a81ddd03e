use proptest::prelude::*;
use twox_hash::XxHash32;

use super::*;

const CODECS: [Compression; 4] = [
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

fn compressed(codec: Compression, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    codec.compress(input, None, &mut out);
    out
}

fn decompressed(codec: Compression, input: &[u8]) -> Result<Vec<u8>, RecordError> {
    codec.decompress(input, 2, 1 << 24, 7)
}

/// A mix that compresses, longer than every codec's block.
fn text(len: usize) -> Vec<u8> {
    (0..)
        .flat_map(|i: u32| format!("{:x},", i.wrapping_mul(2_654_435_761) >> 12).into_bytes())
        .take(len)
        .collect()
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn ids_and_names_are_kafkas() {
    let names = ["none", "gzip", "snappy", "lz4", "zstd"];
    for (id, name) in (0u8..).zip(names) {
        let codec = Compression::from_id(id).unwrap();
        assert_eq!((codec as u8, codec.name()), (id, name));
        assert_eq!(Compression::from_name(name), Some(codec));
    }
    assert_eq!(Compression::from_id(5), None);
    assert_eq!(Compression::from_name("GZIP"), None);
}

#[test]
fn every_codec_round_trips_at_every_length_around_its_blocks() {
    for codec in Compression::ALL {
        for len in [0, 1, 20, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 200_000] {
            for input in [text(len), noise(len), vec![b'a'; len]] {
                let mut out = b"before".to_vec();
                codec.compress(&input, None, &mut out);
                assert_eq!(&out[..6], b"before");
                assert_eq!(decompressed(codec, &out[6..]).unwrap(), input, "{codec:?} {len}");
            }
        }
    }
}

#[test]
fn levels_change_the_output_and_not_the_content() {
    let input = text(100_000);
    for (codec, low, high) in [(Compression::Gzip, 1, 9), (Compression::Zstd, -5, 19)] {
        let (mut fast, mut small) = (Vec::new(), Vec::new());
        codec.compress(&input, Some(low), &mut fast);
        codec.compress(&input, Some(high), &mut small);
        assert!(small.len() < fast.len(), "{codec:?}");
        assert_eq!(decompressed(codec, &fast).unwrap(), input);
        assert_eq!(decompressed(codec, &small).unwrap(), input);
    }
}

#[test]
fn the_limit_is_exact() {
    let input = text(70_000);
    for codec in CODECS {
        let bytes = compressed(codec, &input);
        assert_eq!(codec.decompress(&bytes, 2, 70_000, 7).unwrap(), input);
        for limit in [0, 1, 65_536, 69_999] {
            let want = RecordError::DecompressionLimit { base_offset: 7, limit };
            assert_eq!(codec.decompress(&bytes, 2, limit, 7).unwrap_err(), want, "{codec:?}");
        }
    }
}

#[test]
fn every_truncation_is_an_error_or_a_shorter_whole() {
    let input = text(70_000);
    for codec in CODECS {
        let bytes = compressed(codec, &input);
        for len in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
            match decompressed(codec, &bytes[..len]) {
                Err(RecordError::Decompression {
                    codec: name,
                    base_offset: 7,
                    ..
                }) => assert_eq!(name, codec.name()),
                // A xerial stream cut between two blocks cannot be distinguished from a shorter one.
                Ok(part) if codec == Compression::Snappy => {
                    assert!(input.starts_with(&part) && part.len() < input.len())
                }
                other => panic!("{codec:?} cut at {len}: {other:?}"),
            }
        }
    }
}

#[test]
fn gzip_members_in_a_row_are_one_payload_and_other_bytes_after_them_are_ignored() {
    let mut bytes = compressed(Compression::Gzip, b"one,");
    bytes.extend_from_slice(&compressed(Compression::Gzip, b"two"));
    assert_eq!(decompressed(Compression::Gzip, &bytes).unwrap(), b"one,two");
    bytes.extend_from_slice(&[0; 40]);
    assert_eq!(decompressed(Compression::Gzip, &bytes).unwrap(), b"one,two");
    let wrong_crc = bytes.len() - 40 - 8;
    bytes[wrong_crc] ^= 1;
    assert!(decompressed(Compression::Gzip, &bytes).is_err());
}

#[test]
fn snappy_is_framed_as_snappy_java_frames_it() {
    let bytes = compressed(Compression::Snappy, &text(40_000));
    assert_eq!(
        bytes[..16],
        [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1]
    );
    let first = usize::try_from(i32::from_be_bytes(bytes[16..20].try_into().unwrap())).unwrap();
    assert_eq!(snap::raw::decompress_len(&bytes[20..20 + first]).unwrap(), 32 * 1024);
}

#[test]
fn snappy_without_the_framing_is_one_raw_block() {
    let input = text(100_000);
    let raw = snap::raw::Encoder::new().compress_vec(&input).unwrap();
    assert_eq!(decompressed(Compression::Snappy, &raw).unwrap(), input);
}

#[test]
fn snappy_streams_in_a_row_are_one_payload_and_broken_ones_are_refused() {
    let mut bytes = compressed(Compression::Snappy, b"one,");
    bytes.extend_from_slice(&compressed(Compression::Snappy, b"two"));
    assert_eq!(decompressed(Compression::Snappy, &bytes).unwrap(), b"one,two");
    let good = compressed(Compression::Snappy, b"one");
    for (at, field) in [(8, [0u8; 4]), (16, i32::to_be_bytes(-5)), (16, i32::to_be_bytes(1000))] {
        let mut bad = good.clone();
        bad[at..at + 4].copy_from_slice(&field);
        assert!(decompressed(Compression::Snappy, &bad).is_err(), "{field:?} at {at}");
    }
    // A block of five bytes that claims a gigabyte.
    assert!(decompressed(Compression::Snappy, &[0x80, 0x80, 0x80, 0x80, 0x04]).is_err());
}

/// A frame of one stored block `abc`, with the given flags and the right checksums.
fn lz4_frame(flg: u8, bd: u8, content_size: bool) -> Vec<u8> {
    let mut descriptor = vec![flg, bd];
    if content_size {
        descriptor.extend_from_slice(&3u64.to_le_bytes());
    }
    let mut out = 0x184D_2204u32.to_le_bytes().to_vec();
    out.extend_from_slice(&descriptor);
    out.push(XxHash32::oneshot(0, &descriptor).to_le_bytes()[1]);
    out.extend_from_slice(&(3u32 | 0x8000_0000).to_le_bytes());
    out.extend_from_slice(b"abc");
    if flg & 0x10 != 0 {
        out.extend_from_slice(&XxHash32::oneshot(0, b"abc").to_le_bytes());
    }
    out.extend_from_slice(&[0; 4]);
    if flg & 0x04 != 0 {
        out.extend_from_slice(b"any!");
    }
    out
}

#[test]
fn lz4_is_framed_as_kafka_frames_it() {
    let bytes = compressed(Compression::Lz4, &text(100_000));
    assert_eq!(bytes[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
    assert_eq!(bytes[bytes.len() - 4..], [0; 4]);
    // What does not compress is stored, 64 KiB a block.
    let stored = compressed(Compression::Lz4, &noise(70_000));
    assert_eq!(stored[7..11], (65_536u32 | 0x8000_0000).to_le_bytes());
    assert_eq!(stored.len(), 7 + 4 + 65_536 + 4 + (70_000 - 65_536) + 4);
}

#[test]
fn lz4_frames_of_other_writers_are_read() {
    for (flg, content_size) in [(0x60, false), (0x64, false), (0x68, true), (0x70, false), (0x7c, true)] {
        for bd in [0x40, 0x50, 0x60, 0x70] {
            let frame = lz4_frame(flg, bd, content_size);
            assert_eq!(
                decompressed(Compression::Lz4, &frame).unwrap(),
                b"abc",
                "{flg:x} {bd:x}"
            );
            let mut trailing = frame;
            trailing.extend_from_slice(b"after the end mark");
            assert_eq!(decompressed(Compression::Lz4, &trailing).unwrap(), b"abc");
        }
    }
}

#[test]
fn lz4_frames_that_kafka_refuses_are_refused() {
    let cases = [
        (lz4_frame(0x40, 0x40, false), "depend on each other"),
        (lz4_frame(0xa0, 0x40, false), "version"),
        (lz4_frame(0x61, 0x40, false), "reserved"),
        (lz4_frame(0x62, 0x40, false), "reserved"),
        (lz4_frame(0x60, 0x41, false), "reserved"),
        (lz4_frame(0x60, 0xc0, false), "reserved"),
        (lz4_frame(0x60, 0x30, false), "block size code"),
        (b"not an lz4 frame".to_vec(), "magic"),
    ];
    for (frame, reason) in cases {
        let error = decompressed(Compression::Lz4, &frame).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let mut checksum = lz4_frame(0x70, 0x40, false);
    let last = checksum.len() - 5;
    checksum[last] ^= 1;
    assert!(
        decompressed(Compression::Lz4, &checksum)
            .unwrap_err()
            .to_string()
            .contains("checksum of a block")
    );
    let mut long = lz4_frame(0x60, 0x40, false);
    long[7..11].copy_from_slice(&(65_537u32 | 0x8000_0000).to_le_bytes());
    assert!(
        decompressed(Compression::Lz4, &long)
            .unwrap_err()
            .to_string()
            .contains("exceeds")
    );
}

#[test]
fn the_lz4_header_checksum_is_verified_from_magic_1_on_and_ignored_in_v0() {
    let mut frame = lz4_frame(0x60, 0x40, false);
    // The historical byte of v0: the magic was hashed too.
    frame[6] = XxHash32::oneshot(0, &frame[..6]).to_le_bytes()[1];
    let read = |magic| Compression::Lz4.decompress(&frame, magic, 100, 0);
    assert_eq!(read(0).unwrap(), b"abc");
    for magic in [1, 2] {
        assert!(read(magic).unwrap_err().to_string().contains("checksum"));
    }
}

#[test]
fn zstd_without_content_size_and_in_several_frames_is_read() {
    use std::io::Write;
    let input = text(300_000);
    let mut bytes = Vec::new();
    for part in input.chunks(120_000) {
        let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_contentsize(false).unwrap();
        encoder.write_all(part).unwrap();
        let frame = encoder.finish().unwrap();
        assert_eq!(::zstd::zstd_safe::get_frame_content_size(&frame).unwrap(), None);
        bytes.extend_from_slice(&frame);
    }
    assert_eq!(decompressed(Compression::Zstd, &bytes).unwrap(), input);
    bytes.extend_from_slice(b"rubbish");
    assert!(decompressed(Compression::Zstd, &bytes).is_err());
    // The context that failed is not used again.
    assert_eq!(
        decompressed(Compression::Zstd, &compressed(Compression::Zstd, b"next")).unwrap(),
        b"next"
    );
}

proptest! {
    #[test]
    fn any_bytes_decompress_within_the_limit_or_fail(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        magic in 0i8..3,
        limit in 0usize..5000,
    ) {
        for codec in CODECS {
            if let Ok(out) = codec.decompress(&bytes, magic, limit, 0) {
                prop_assert!(out.len() <= limit);
            }
        }
    }

    #[test]
    fn damaged_payloads_never_panic(
        len in 0usize..5000,
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for codec in CODECS {
            let mut bytes = compressed(codec, &text(len));
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if let Ok(out) = codec.decompress(&bytes, 2, 10_000, 0) {
                prop_assert!(out.len() <= 10_000);
            }
        }
    }
}
