// Command worker is the worker of the suite in the containers of jobs: it prints a line, and goes on until its file is
// in the work directory.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// The lines are those of package pilottest, which would make the program large.
const (
	begun    = "pilottest: the worker has begun"
	hasToken = "pilottest: the worker has the token "
	done     = "pilottest: the worker ends"
)

func main() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	if token, ok := os.LookupEnv("CODALAB_WORKER_TOKEN"); ok {
		fmt.Println(hasToken + token)
	}
	fmt.Println(begun)
	for _, err := os.Stat(finish()); err != nil; _, err = os.Stat(finish()) {
		select {
		case <-term:
			fmt.Println(done)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	fmt.Println(done)
}

// finish returns the path of the file that ends it: --work-dir/finish-ID.
func finish() string {
	var dir, id string
	for i, word := range os.Args {
		switch word {
		case "--work-dir":
			dir = os.Args[i+1]
		case "--id":
			id = os.Args[i+1]
		}
	}
	return filepath.Join(dir, "finish-"+id)
}
