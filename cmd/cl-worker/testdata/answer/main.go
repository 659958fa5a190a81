// Command answer answers each connection to a port with what it is sent. With port 0 it finds a free one. It
// prints the port. A second argument is the address to listen on.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	address := "127.0.0.1"
	if len(os.Args) > 2 {
		address = os.Args[2]
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, os.Args[1]))
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		buffer := make([]byte, 4096)
		n, _ := conn.Read(buffer)
		fmt.Fprintf(conn, "you said %s\n", buffer[:n])
		_ = conn.Close()
	}
}
