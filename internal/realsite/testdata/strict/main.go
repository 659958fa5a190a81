// Strict prints a line for each path: the verdict of the package strictmodes. A path named secret is read as one.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

func main() {
	for _, path := range os.Args[1:] {
		err := strictmodes.Current().Check(path)
		if filepath.Base(path) == "secret" {
			err = strictmodes.CheckSecretFile("password", path)
		}
		if err == nil {
			fmt.Println("ok")
			continue
		}
		fmt.Println(err)
	}
}
