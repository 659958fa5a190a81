// Command worker stands in for cl-worker in the pods of tests. The value of its flag --tag is its behaviour.
// `worker finish` ends the worker of the same pod.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "finish" {
		_ = syscall.Kill(1, syscall.SIGUSR1) // the worker is the first process of its pod
		return
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGUSR1)
	behaviour, value, _ := strings.Cut(argument("--tag"), "=")
	n, _ := strconv.Atoi(value) // 0 if there is none
	if behaviour == "silent" {
		<-end
		return
	}
	printLogin()
	fmt.Println("pilottest: the worker has begun")
	behave(behaviour, n, end)
	fmt.Println("pilottest: the worker ends")
}

func argument(flag string) string {
	if i := slices.Index(os.Args, flag); i > 0 {
		return os.Args[i+1]
	}
	return ""
}

func printLogin() {
	for _, variable := range []string{"CODALAB_WORKER_TOKEN", "CODALAB_USERNAME", "CODALAB_PASSWORD"} {
		if value, ok := os.LookupEnv(variable); ok {
			fmt.Printf("%s=%q\n", variable, value)
		}
	}
	if token, ok := os.LookupEnv("CODALAB_WORKER_TOKEN"); ok {
		fmt.Println("pilottest: the worker has the token " + token)
	}
}

func behave(behaviour string, n int, end <-chan os.Signal) {
	switch behaviour {
	case "exit":
		os.Exit(n)
	case "lines":
		for i := range n {
			fmt.Println("line", i)
		}
		return
	case "eat":
		var all [][]byte
		for {
			all = append(all, bytes.Repeat([]byte("x"), 1<<20))
			_ = all
		}
	case "filter": // 0 without a filter of system calls, 2 with one
		status, _ := os.ReadFile("/proc/self/status")
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "Seccomp:") {
				fmt.Println(strings.Join(strings.Fields(line), " "))
			}
		}
		return
	case "show":
		info, err := os.Stat("/tmp/large")
		if err == nil {
			fmt.Printf("the volume has %d bytes in large\n", info.Size())
		}
		return
	case "fill":
		// A worker that the kubelet evicts and that ends well within its second has a pod that succeeded.
		signal.Ignore(syscall.SIGTERM)
		fill("/tmp/large", n)
	case "tick":
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond):
				fmt.Println("tick", i)
			}
		}
	}
	<-end
}

// fill writes n MiB to a file. Each one is flushed: pages that are not on the disk yet count for the container's memory,
// and on a busy disk it would be killed for them.
func fill(name string, n int) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	for range n {
		if err == nil {
			_, err = f.Write(make([]byte, 1<<20))
		}
		if err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		fmt.Println("pilottest: cannot fill the disk:", err)
	}
}
