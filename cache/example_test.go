package cache_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/cl-slurm/cl-slurm/cache"
)

// Two bundles need the same image. The cache makes it once, and keeps it while a holder needs it.
func Example() {
	dir, err := os.MkdirTemp("", "cache")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// A negative Settle is for a disk that only this host uses: leave it out on a shared disk.
	c, err := cache.Open(dir, cache.Options{Settle: -1})
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	convert := func(_ context.Context, tmp string) error {
		fmt.Println("convert the image")
		return os.WriteFile(tmp, []byte("an image"), 0o600)
	}
	for _, bundle := range []cache.Holder{"row-1", "row-2"} {
		path, err := c.Get(ctx, cache.Want{
			Key:    cache.Key{Kind: "sif", ID: "debian@sha256:4f6c amd64"},
			Holder: bundle,
		}, convert)
		if err != nil {
			log.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s reads %q\n", bundle, content)
	}

	// Both bundles have ended: a trim may retire the image.
	for _, bundle := range []cache.Holder{"row-1", "row-2"} {
		if err := c.Unpin(ctx, bundle); err != nil {
			log.Fatal(err)
		}
	}
	trimmed, err := c.Trim(ctx, cache.TrimOptions{All: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, entry := range trimmed.Retired {
		fmt.Println("retired:", entry.Key)
	}

	// Output:
	// convert the image
	// row-1 reads "an image"
	// row-2 reads "an image"
	// retired: sif "debian@sha256:4f6c amd64"
}
