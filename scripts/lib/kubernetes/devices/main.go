// Command devices is a device plugin: it offers device files of a node to kubelet as extended
// resources. Each argument is one resource, NAME=FILE,FILE,… or NAME=COUNT*FILE for a device that
// COUNT containers may open at the same time:
//
//	devices nvidia.com/gpu=/dev/nvidia0,/dev/nvidia1 smarter-devices/fuse=100*/dev/fuse
//
// As NVIDIA's plugin does, it puts the names of the GPUs in NVIDIA_VISIBLE_DEVICES of a container.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "devices:", err)
		os.Exit(1)
	}
}

// run serves the resources. kubelet removes the sockets of plugins at its start, and expects them to
// register again.
func run(arguments []string) error {
	failures := make(chan error, len(arguments))
	var plugins sync.WaitGroup // each goes on until it fails
	for _, argument := range arguments {
		r, err := parse(argument)
		if err != nil {
			return err
		}
		plugins.Go(func() { failures <- r.serveForever() })
	}
	return <-failures
}

// resource is one extended resource of the node.
type resource struct {
	api.UnimplementedDevicePluginServer

	name  string
	files map[string]string // device file by the id of the device
}

func parse(argument string) (*resource, error) {
	name, list, ok := strings.Cut(argument, "=")
	if !ok {
		return nil, fmt.Errorf("%q is not NAME=FILE,…", argument)
	}
	r := &resource{name: name, files: map[string]string{}}
	if count, file, shared := strings.Cut(list, "*"); shared {
		n, err := strconv.Atoi(count)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", argument, err)
		}
		for i := range n {
			r.files[fmt.Sprintf("%s-%d", filepath.Base(file), i)] = file
		}
		return r, nil
	}
	for file := range strings.SplitSeq(list, ",") {
		r.files[filepath.Base(file)] = file
	}
	return r, nil
}

// serveForever serves the resource, and registers it again whenever its socket is gone.
func (r *resource) serveForever() error {
	for {
		if err := r.serve(); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
}

// serve serves the resource until its socket is gone.
func (r *resource) serve() error {
	socket := filepath.Join(api.DevicePluginPath, strings.ReplaceAll(r.name, "/", "-")+".sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for !exists(api.KubeletSocket) {
		time.Sleep(100 * time.Millisecond)
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, r)
	var serving sync.WaitGroup
	var serveErr error
	serving.Go(func() { serveErr = server.Serve(listener) })
	if err := r.register(filepath.Base(socket)); err == nil {
		for exists(socket) {
			time.Sleep(200 * time.Millisecond)
		}
	} // otherwise kubelet has just ended
	server.Stop()
	serving.Wait()
	if serveErr != nil {
		return fmt.Errorf("serve kubelet: %w", serveErr)
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func (r *resource) register(endpoint string) error {
	conn, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to kubelet: %w", err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: r.name, Options: &api.DevicePluginOptions{},
	}); err != nil {
		return fmt.Errorf("register with kubelet: %w", err)
	}
	return nil
}

// GetDevicePluginOptions is the API's.
func (r *resource) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch is the API's: it lists the devices once, since their health never changes.
func (r *resource) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	list := &api.ListAndWatchResponse{}
	for id := range r.files {
		list.Devices = append(list.Devices, &api.Device{ID: id, Health: api.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	<-stream.Context().Done()
	return nil
}

// Allocate is the API's.
func (r *resource) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		one := &api.ContainerAllocateResponse{}
		seen := map[string]bool{}
		for _, id := range container.DevicesIds {
			file, ok := r.files[id]
			if !ok {
				return nil, fmt.Errorf("there is no device %q", id)
			}
			if !seen[file] {
				seen[file] = true
				one.Devices = append(one.Devices, &api.DeviceSpec{ContainerPath: file, HostPath: file, Permissions: "rw"})
			}
		}
		if strings.HasPrefix(r.name, "nvidia.com/") {
			one.Envs = map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}
