package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/stocktest"
)

// A program signs in, makes a dataset, uploads a file to it, and reads the file back.
func Example() {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// A stand-in for a server. With a real one, leave HTTP out below, and give New the server's address.
	server, err := stocktest.New(stocktest.Options{Dir: dir, Users: []stocktest.User{{Name: "ann", Password: "secret"}}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	ctx := context.Background()
	c, err := client.New(stocktest.Address, client.Options{
		HTTP:        server.Client(),
		ClientID:    client.CommandClient,
		Credentials: func(context.Context) (user, password string, err error) { return "ann", "secret", nil },
	})
	if err != nil {
		log.Fatal(err)
	}

	metadata := codalab.Metadata{}
	for _, key := range codalab.MetadataKeys(codalab.TypeDataset) {
		if !key.Generated {
			metadata[key.Key] = key.Default
		}
	}
	metadata["name"] = "fruit"
	bundle, err := c.CreateBundle(ctx, client.NewBundle{
		Worksheet: "0x00000000000000000000000000000001", // on a real server: FindWorksheet
		Type:      codalab.TypeDataset, Metadata: metadata, WaitForUpload: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	err = c.UploadContents(ctx, bundle.UUID, client.UploadOptions{Filename: "fruit.txt", Finalize: true}, strings.NewReader("apple\npear\n"))
	if err != nil {
		log.Fatal(err)
	}

	contents, err := c.OpenContents(ctx, codalab.Target{BundleUUID: bundle.UUID}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = contents.Close() }()
	text, err := io.ReadAll(contents)
	if err != nil {
		log.Fatal(err)
	}
	standing, err := c.Standing(ctx, bundle.UUID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %d bytes, %q\n", standing.State, contents.Size, text)

	// Output:
	// ready: 11 bytes, "apple\npear\n"
}
