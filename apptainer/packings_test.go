package apptainer_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// piped returns the output of a program for this input.
func piped(t *testing.T, input []byte, words ...string) []byte {
	t.Helper()
	testenv.ImageTool(t, words[0])
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.Output()
	must(t, err)
	return out
}

// Docker takes all of these: 20.10 was tried, which lacks zstd; bytes behind gzip it takes where unpigz
// is installed.
func TestLayersArePackedInAnyWayThatDockerTakes(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	stream := imagetest.TarStream(t, imagetest.Regular("a", "content"))
	join := func(parts ...string) []byte { return []byte(strings.Join(parts, "")) }
	half := len(stream) / 2
	zipped := string(gzipped(t, stream))
	for name, blob := range map[string][]byte{
		"xz":                       piped(t, stream, "xz"),
		"xz of two streams":        append(piped(t, stream[:half], "xz"), piped(t, stream[half:], "xz", "-9e")...),
		"bzip2":                    piped(t, stream, "bzip2"),
		"bzip2 of two streams":     append(piped(t, stream[:half], "bzip2"), piped(t, stream[half:], "bzip2", "-1")...),
		"gzip of two members":      join(string(gzipped(t, stream[:half])), string(gzipped(t, stream[half:]))),
		"gzip of empty members":    join(string(gzipped(t)), zipped, string(gzipped(t))),
		"gzip with zeros behind":   join(zipped, string(make([]byte, 512))),
		"gzip with a byte behind":  join(zipped, "\x1f"),
		"gzip with text behind":    join(zipped, "some text that is no gzip at all\n"),
		"gzip, and long zeros":     join(zipped, string(make([]byte, 1<<20))),
		"a file name as in bzip2":  imagetest.TarStream(t, imagetest.Regular("BZh9-file", ""), imagetest.Regular("a", "content")),
		"a file name as in zip":    imagetest.TarStream(t, imagetest.Regular("PK\x03\x04", ""), imagetest.Regular("a", "content")),
		"zstd of two frames":       append(zstandard(t, stream[:half]), zstandard(t, stream[half:])...),
		"zstd and skippable frame": append([]byte("\x50\x2a\x4d\x18\x04\x00\x00\x00skip"), zstandard(t, stream)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := stream
			if name[:2] == "a " {
				content = blob
			}
			for _, kind := range []types.MediaType{types.DockerLayer, types.OCIUncompressedLayer, "application/vnd.oci.image.layer.v1.tar+xz"} {
				sif := converted(t, apptainer.Converter{}, published(t, blobImage(t, blob, kind, content)))
				if got := unsquash(t, sif, "-cat", sif, "a"); got != "content" {
					t.Errorf("as %s the file reads %q", kind, got)
				}
			}
		})
	}
}

// The errors name what is wrong, and no other thing.
func TestDamagedLayersOfOtherPackingsAreRefused(t *testing.T) {
	t.Parallel()
	stream := imagetest.TarStream(t, imagetest.Regular("a", "content"))
	xz, bz := piped(t, stream, "xz"), piped(t, stream, "bzip2")
	flipped := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[len(b)/2] ^= 0x55
		return b
	}
	for name, layer := range map[string]struct {
		blob  []byte
		words string
	}{
		"xz cut short":             {xz[:len(xz)-20], "unpack: xz: (stdin): Unexpected end of input"},
		"xz that is damaged":       {flipped(xz), "layer 2 of 2: after 0 tar entries: unpack: xz: (stdin): Compressed data is corrupt"},
		"xz with text behind":      {append(bytes.Clone(xz), "some text that is no xz at all\n"...), "unpack: xz: (stdin): "},
		"bzip2 cut short":          {bz[:len(bz)-20], "its content is cut short"},
		"bzip2 that is damaged":    {flipped(bz), "unpack: bzip2 data invalid: "},
		"gzip and a half":          {append(gzipped(t, stream), gzipped(t, stream)[:30]...), "its content is cut short"},
		"xz that takes 1.5 GiB":    {demandingXZ(xz), "unpack: xz: (stdin): Memory usage limit reached"},
		"zstd that takes 256 MiB":  {demandingZstd(stream), "it takes more than 128 MiB of memory to unpack, the most that is allowed"},
		"gzip of another content":  {gzipped(t, stream, stream), "it unpacks to sha256:"},
		"xz of another content":    {piped(t, append(bytes.Clone(stream), stream...), "xz"), "it unpacks to sha256:"},
		"bzip2 of another content": {piped(t, append(bytes.Clone(stream), stream...), "bzip2"), "it unpacks to sha256:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img := published(t, blobImage(t, layer.blob, types.OCILayer, stream))
			failedConversion(t, apptainer.Converter{Source: imagetest.Source()}, img, false, layer.words)
		})
	}
}

// demandingXZ makes the header of a file's first block ask for a dictionary of 1.5 GiB (the .xz file
// format, 3.1 and 5.3.1).
func demandingXZ(xz []byte) []byte {
	xz = bytes.Clone(xz)
	block := xz[12:]
	size := (int(block[0]) + 1) * 4
	at := bytes.Index(block[:size], []byte{0x21, 0x01}) // LZMA2, with one byte of properties
	block[at+2] = 37
	binary.LittleEndian.PutUint32(block[size-4:], crc32.ChecksumIEEE(block[:size-4]))
	return xz
}

// demandingZstd packs a small stream into a frame with a window of 256 MiB (RFC 8878, 3.1.1).
func demandingZstd(stream []byte) []byte {
	const raw, last, window = 0, 1, (28 - 10) << 3
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, window}
	head := len(stream)<<3 | raw<<1 | last
	return append(append(frame, byte(head), byte(head>>8), byte(head>>16)), stream...)
}

// A host without xz, or one that is short of memory, is no fault of the layer's content.
func TestFailuresOfXZThatNoLayerCauses(t *testing.T) {
	t.Parallel()
	missing := command.Command{Args: []string{"no-such-program-as-xz"}}.Run(t.Context())
	if err := apptainer.XZError(missing); !strings.Contains(err.Error(), "which is not installed here (Debian's package xz-utils)") {
		t.Error(err)
	}
	killed := command.Command{Args: []string{"/bin/sh", "-c", "kill -KILL $$"}}.Run(t.Context())
	var kind interface{ Transient() bool }
	if err := apptainer.XZError(killed); !errors.As(err, &kind) || !kind.Transient() || err.Error() != "unpack: xz was killed" {
		t.Error(err)
	}
}
