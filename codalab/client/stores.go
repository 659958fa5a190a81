package client

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// BundleStore is a store for contents on CodaLab's own server.
type BundleStore struct {
	ID             string `json:"-"`
	Name           string `json:"name,omitempty"`
	StorageType    string `json:"storage_type,omitempty"`
	StorageFormat  string `json:"storage_format,omitempty"`
	URL            string `json:"url,omitempty"`
	Authentication string `json:"authentication,omitempty"`
}

// BundleStores returns the bundle stores that the user may use.
func (c *Client) BundleStores(ctx context.Context) ([]BundleStore, error) {
	return getAll(ctx, c, "/bundle_stores", nil, nil, readStore)
}

// AddBundleStore adds a bundle store.
func (c *Client) AddBundleStore(ctx context.Context, store BundleStore) (BundleStore, error) {
	return create(ctx, c, "bundle_stores", nil, store, readStore)
}

// RemoveBundleStore removes a bundle store.
func (c *Client) RemoveBundleStore(ctx context.Context, id string) error {
	_, err := c.submit(ctx, http.MethodDelete, "/bundle_stores", nil, removal("bundle_stores", []string{id}))
	return err
}

func readStore(_ related, o codalab.Object) (BundleStore, error) {
	s := BundleStore{ID: o.ID}
	err := o.Decode(&s)
	return s, err
}
