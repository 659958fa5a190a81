package pages

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/klauspost/compress/gzhttp"

	"github.com/cl-slurm/cl-slurm/internal/katex"
)

//go:embed static
var ownFiles embed.FS

// files are the static files: those of the pages, and KaTeX.
type files struct{}

// Open opens a file.
func (files) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, "static/katex/") {
		return katex.Files.Open(name) //nolint:wrapcheck // package http answers by the kind of the error
	}
	return ownFiles.Open(name) //nolint:wrapcheck // likewise
}

// each calls a function for each file.
func (f files) each(do func(name string, data []byte) error) error {
	for _, from := range []embed.FS{ownFiles, katex.Files} {
		err := fs.WalkDir(from, "static", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := fs.ReadFile(f, name)
			if err != nil {
				return fmt.Errorf("read a static file: %w", err)
			}
			return do(name, data)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// digests has a short digest of each static file, by its path.
type digests map[string]string

func newDigests() digests {
	d := digests{}
	err := files{}.each(func(name string, data []byte) error {
		sum := sha256.Sum256(data)
		d["/"+name] = hex.EncodeToString(sum[:8])
		return nil
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	return d
}

// address is the address of a static file. The digest in it lets browsers keep the file for good: another file has another
// address.
func (d digests) address(file string) (string, error) {
	name := path.Join("/static", file)
	if d[name] == "" {
		return "", fmt.Errorf("there is no static file %q", file)
	}
	return name + "?v=" + d[name], nil
}

// serve serves the static files.
func (d digests) serve(w http.ResponseWriter, r *http.Request) {
	guard(w)
	age := "max-age=3600"
	if v := r.URL.Query().Get("v"); v != "" && v == d[r.URL.Path] {
		age = "max-age=31536000, immutable"
	}
	w.Header().Set("Cache-Control", "public, "+age)
	if digest := d[r.URL.Path]; digest != "" {
		w.Header().Set("ETag", `W/"`+digest+`"`) // weak: it may be compressed
	}
	http.FileServerFS(files{}).ServeHTTP(w, r)
}

// compressing returns a wrapper of handlers that compresses text. The size of a page with what its reader may see and with
// what another site has put into its address tells an eavesdropper whether the two are alike, so a few random bytes blur it.
func compressing() func(http.Handler) http.HandlerFunc {
	const blur = 64
	wrap, err := gzhttp.NewWrapper(
		gzhttp.ContentTypes([]string{"text/html", "text/css", "text/javascript", "image/svg+xml"}),
		gzhttp.EnableZstd(false), // its encoders hold more memory
		gzhttp.RandomJitter(blur, 0, false),
	)
	if err != nil {
		panic(err) // the options are fixed
	}
	return wrap
}

// isStream reports whether a route of pages is a stream of events or an archive, which has to be sent as it comes.
func isStream(pattern string) bool {
	return strings.HasSuffix(pattern, "/events") || strings.HasSuffix(pattern, ".zip")
}
