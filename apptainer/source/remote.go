package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// remoteStore reads an image from the registry in its reference, or from a mirror of it.
type remoteStore struct {
	ref       Reference
	endpoints []*endpoint // the mirrors, and the registry itself last
	delay     time.Duration
}

// remote returns the store of a reference to a registry. It makes no request.
func (src Source) remote(ref Reference) (*remoteStore, error) {
	host := src.Hosts[ref.host]
	s := &remoteStore{ref: ref, delay: src.retryDelay()}
	for _, text := range host.Mirrors {
		m, err := parseMirror(text)
		if err != nil {
			return nil, err
		}
		plain := m.plain || src.Hosts[m.host].PlainHTTP
		s.endpoints = append(s.endpoints, &endpoint{source: src, host: m.host, repository: path.Join(m.prefix, ref.repository), mirror: true, plain: plain})
	}
	s.endpoints = append(s.endpoints, &endpoint{source: src, host: ref.host, repository: ref.repository, plain: host.PlainHTTP})
	return s, nil
}

func (s *remoteStore) close() {
	for _, e := range s.endpoints {
		e.close()
	}
}

// tryEach calls get with the endpoints in order, the failing ones last, until one call succeeds.
// The error is the registry's own, with those of the mirrors.
func (s *remoteStore) tryEach(ctx context.Context, get func(*endpoint) error) error {
	var up, down []*endpoint
	for _, e := range s.endpoints {
		if e.down.Load() {
			down = append(down, e)
		} else {
			up = append(up, e)
		}
	}
	errs := map[*endpoint]error{}
	for _, e := range append(up, down...) {
		err := get(e)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs[e] = err
	}
	last := len(s.endpoints) - 1
	own := errs[s.endpoints[last]]
	out := plainError{text: own.Error(), cause: own}
	for _, mirror := range s.endpoints[:last] {
		out.text += fmt.Sprintf(" (its mirror %s: %v)", mirror.host, errs[mirror])
	}
	if worded, ok := errors.AsType[plainError](own); ok {
		out.transient, out.after = worded.transient, worded.after
	}
	return out
}

// identifier returns the tag or digest for the request of a manifest.
func (s *remoteStore) identifier(digest string) string {
	switch {
	case digest != "":
		return digest
	case s.ref.digest != "":
		return s.ref.digest
	default:
		return s.ref.tag
	}
}

func acceptManifests() http.Header {
	return http.Header{"Accept": {strings.Join([]string{
		string(types.OCIImageIndex), string(types.DockerManifestList),
		string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
		string(types.DockerManifestSchema1Signed), string(types.DockerManifestSchema1),
	}, ", ")}}
}

func (s *remoteStore) manifest(ctx context.Context, digest string) (m manifest, err error) {
	id := s.identifier(digest)
	want := ""
	if strings.Contains(id, ":") {
		want = id
	}
	err = s.tryEach(ctx, func(e *endpoint) error {
		resp, err := e.get(ctx, http.MethodGet, "manifests/"+id, acceptManifests())
		if err != nil {
			return err
		}
		defer func() { _ = resp.Close() }()
		raw, err := resp.readAll(maxManifestBytes)
		if err != nil {
			return e.explain(err)
		}
		m, err = newManifest(raw, want, resp.Header.Get("Content-Type"))
		m.private = e.login.Load() != nil
		return err
	})
	return m, err
}

// current makes a HEAD request, which Docker Hub does not count as a pull. If a registry does not
// answer it, current makes the request of a pull.
func (s *remoteStore) current(ctx context.Context) (digest string, private bool, err error) {
	id := s.identifier("")
	err = s.tryEach(ctx, func(e *endpoint) error {
		resp, err := e.get(ctx, http.MethodHead, "manifests/"+id, acceptManifests())
		if err != nil {
			return err
		}
		digest, private = resp.Header.Get("Docker-Content-Digest"), e.login.Load() != nil
		return resp.Close()
	})
	var refused *refusal
	noHead := errors.As(err, &refused) && (refused.status == http.StatusNotFound ||
		refused.status == http.StatusMethodNotAllowed || refused.status == http.StatusNotImplemented)
	if err != nil && !noHead {
		return "", false, err
	}
	if strings.Contains(id, ":") && err == nil {
		return id, private, nil
	}
	if _, bad := v1.NewHash(digest); err != nil || bad != nil {
		m, err := s.manifest(ctx, "")
		return m.digest.String(), m.private, err
	}
	return digest, private, nil
}

func (s *remoteStore) blob(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &blobReader{ctx: ctx, cancel: cancel, store: s, blob: blob, at: offset, since: offset}
	if err := r.open(); err != nil {
		cancel()
		return nil, err
	}
	return r, nil
}
