package stocktest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// put is codalab/rest/bundles.py: _update_bundle_contents_blob. The only archives that it
// unpacks are .tar.gz.
func (s *Server) put(_ http.ResponseWriter, r *http.Request, u *account) error {
	query := r.URL.Query()
	s.mu.Lock()
	b, err := s.allowed(u, r.PathValue("uuid"), "all")
	final := err == nil && b.state.Final()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if final {
		return refuse(http.StatusForbidden, "Contents cannot be modified, bundle already finalized.")
	}
	if name := query.Get("filename"); name != "" {
		unpack := query.Get("unpack") != "0" && (strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz"))
		if err := s.replace(r, b, unpack); err != nil {
			return err
		}
	}
	if query.Get("finalize_on_success") != "0" {
		s.mu.Lock()
		b.state = codalab.StateReady
		s.mu.Unlock()
	}
	return nil
}

// replace replaces a bundle's contents by the body of a request. A broken archive makes the
// bundle failed, even one that a worker is running.
func (s *Server) replace(r *http.Request, b *bundle, unpack bool) error {
	if err := s.store.RemoveAll(b.uuid); err != nil {
		return fmt.Errorf("remove the contents: %w", err)
	}
	if err := s.write(r, b.uuid, unpack); err != nil {
		words := "Upload failed: Invalid archive upload: failed to unpack archive."
		s.mu.Lock()
		b.state = codalab.StateFailed
		b.set(codalab.Metadata{"failure_message": words, "data_size": int64(0)})
		s.mu.Unlock()
		return errors.Join(refuse(http.StatusBadRequest, "%s", words), s.store.RemoveAll(b.uuid))
	}
	extent, err := contents.Measure(s.store, b.uuid)
	if err != nil {
		return err
	}
	s.mu.Lock()
	b.set(codalab.Metadata{"data_size": extent.Bytes})
	s.mu.Unlock()
	return nil
}

func (s *Server) write(r *http.Request, uuid string, unpack bool) error {
	if unpack {
		if err := s.store.Mkdir(uuid, 0o700); err != nil {
			return err
		}
		root, err := s.store.OpenRoot(uuid)
		if err != nil {
			return err
		}
		_, err = tarstream.Unpack(r.Context(), r.Body, root, tarstream.Limits{})
		return errors.Join(err, root.Close())
	}
	f, err := s.store.OpenFile(uuid, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r.Body)
	return errors.Join(err, f.Close())
}
