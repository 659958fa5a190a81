package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// caller is a connection for sequential requests. It does little work, because it shares the processors
// with the server.
type caller struct {
	net.Conn

	in *bufio.Reader
}

// dial connects to the server at an address such as http://127.0.0.1:2900. from is the local address;
// nil for any.
func dial(ctx context.Context, address string, from net.IP) (*caller, error) {
	var d net.Dialer
	if from != nil {
		d.LocalAddr = &net.TCPAddr{IP: from}
	}
	c, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		return nil, err
	}
	return &caller{c, bufio.NewReaderSize(c, 2048)}, nil
}

// call sends a request and reads its answer.
func (c *caller) call(request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(r.Body)
		return fmt.Errorf("the server answered %s: %s", r.Status, text)
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

// request is a request as it is sent, with JSON as its body if there is one. header has further lines.
func request(method, path, token string, body []byte, header ...string) []byte {
	lines := append([]string{method + " " + path + " HTTP/1.1", "Host: localhost", "Authorization: Bearer " + token}, header...)
	if body != nil {
		lines = append(lines, "Content-Type: application/json; charset=utf-8", fmt.Sprint("Content-Length: ", len(body)))
	}
	return append([]byte(strings.Join(lines, "\r\n")+"\r\n\r\n"), body...)
}

// perSecond returns the number of calls of send in a second, when several clients call it continuously:
// the median of some rounds. i counts the calls of a client.
func perSecond(send func(client, i int) error) float64 {
	const rounds, lasts = 5, 2 * time.Second
	var rates []float64
	var sent [atOnce]int
	for range rounds {
		before := sent
		took := seconds(func() {
			end := time.Now().Add(lasts)
			var group errgroup.Group
			for client := range atOnce {
				group.Go(func() error {
					for ; time.Now().Before(end); sent[client]++ {
						if err := send(client, sent[client]); err != nil {
							return err
						}
					}
					return nil
				})
			}
			check(group.Wait())
		})
		all := 0
		for client := range atOnce {
			all += sent[client] - before[client]
		}
		rates = append(rates, float64(all)/took)
	}
	return median(rates)
}
