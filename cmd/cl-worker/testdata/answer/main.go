// Command answer answers each connection to a port with what it is sent. With port 0 it finds a free one. It
// prints the port.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
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
