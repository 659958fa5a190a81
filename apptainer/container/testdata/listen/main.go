// Command listen answers each connection to a port on localhost, after it has read all data of the
// connection.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
	for {
		conn, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go func() {
			text, _ := io.ReadAll(conn)
			_, _ = fmt.Fprintf(conn, "heard %s", text)
			_ = conn.Close()
		}()
	}
}
