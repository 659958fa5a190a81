package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Dial connects to a TCP port of a running pod, given the name from its OnStart. It reaches only a program that listens
// on the pod's address, not on its loopback interface alone. ctx limits only the dialing. The connection also has a
// method CloseWrite() error.
func (s Settings) Dial(ctx context.Context, name string, port int) (io.ReadWriteCloser, error) {
	conn, err := s.dial(ctx, name, port)
	if err != nil {
		return nil, fmt.Errorf("connect to a container: %w", err)
	}
	return conn, nil
}

func (s Settings) dial(ctx context.Context, name string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("%d is not a port", port)
	}
	api, err := connect(s.Access)
	if err != nil {
		return nil, err
	}
	api.namespace = s.Namespace
	pod, err := api.get(ctx, name)
	switch {
	case apierrors.IsNotFound(err), err == nil && hasEnded(pod):
		return nil, errors.New("the container does not run any more")
	case err != nil:
		return nil, err
	case pod.Status.PodIP == "":
		return nil, errors.New("its pod has no address yet")
	}
	return (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)))
}
