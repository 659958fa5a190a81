package awsbatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/batch"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"
)

// Definition is the common part of all workers of a manager.
type Definition struct {
	// Name is the name of the job definition, which managers may share.
	Name  string
	Image string
	// User is the user of the container's processes.
	User                 string
	CPUs, GPUs, MemoryMB int64
	// HostDir is a directory of the instance that holds the workers' files. If it is empty, each worker has a
	// volume of its own, which ECS removes after the job.
	HostDir string
	// Secret is the ARN of a secret with the keys username and password; empty if workers get tokens.
	Secret string
	// ExecutionRole is the ARN of the role with which ECS reads the secret and the image; empty for none.
	ExecutionRole string
}

// WorkDir is the directory of a container that holds the files of the worker.
const WorkDir = "/work"

// contentKey is the parameter of a definition that has the hash of the content. A tag would cost one more permission.
const contentKey = "cl-slurm-content"

// Input returns the registration of the definition.
func (d Definition) Input() (*batch.RegisterJobDefinitionInput, error) {
	requirements := []types.ResourceRequirement{
		requirement(types.ResourceTypeVcpu, d.CPUs), requirement(types.ResourceTypeMemory, d.MemoryMB),
	}
	if d.GPUs > 0 {
		requirements = append(requirements, requirement(types.ResourceTypeGpu, d.GPUs))
	}
	volume := types.Volume{Name: aws.String("work")}
	if d.HostDir != "" {
		volume.Host = &types.Host{SourcePath: &d.HostDir}
	}
	container := &types.ContainerProperties{
		Image: &d.Image, ResourceRequirements: requirements, Privileged: aws.Bool(false),
		Environment: []types.KeyValuePair{ // only our cl-worker reads it: on EC2 a container sees all CPUs of its instance
			{Name: aws.String("CL_WORKER_MAX_CPUS"), Value: aws.String(strconv.FormatInt(d.CPUs, 10))},
		},
		Volumes:     []types.Volume{volume},
		MountPoints: []types.MountPoint{{SourceVolume: volume.Name, ContainerPath: aws.String(WorkDir), ReadOnly: aws.Bool(false)}},
		LinuxParameters: &types.LinuxParameters{
			// The first process of the container removes zombies.
			InitProcessEnabled: aws.Bool(true),
			Devices:            []types.Device{device("/dev/fuse"), device("/dev/net/tun")}, // for images, and networks of runs
		},
	}
	if d.User != "" {
		container.User = &d.User
	}
	if d.ExecutionRole != "" {
		container.ExecutionRoleArn = &d.ExecutionRole
	}
	if d.Secret != "" { // Batch user guide, Specify sensitive data: <ARN>:<JSON key>:<version stage>:<version id>
		container.Secrets = []types.Secret{
			{Name: aws.String(userVariable), ValueFrom: aws.String(d.Secret + ":username::")},
			{Name: aws.String(passwordVariable), ValueFrom: aws.String(d.Secret + ":password::")},
		}
	}
	input := &batch.RegisterJobDefinitionInput{
		Type: types.JobDefinitionTypeContainer, PlatformCapabilities: []types.PlatformCapability{types.PlatformCapabilityEc2},
		// A worker of the same id must not begin again.
		RetryStrategy: &types.RetryStrategy{Attempts: aws.Int32(1)}, ContainerProperties: container,
	}
	hash, err := contentHash(input)
	if err != nil {
		return nil, err
	}
	input.JobDefinitionName, input.Parameters = &d.Name, map[string]string{contentKey: hash}
	return input, nil
}

func requirement(kind types.ResourceType, n int64) types.ResourceRequirement {
	return types.ResourceRequirement{Type: kind, Value: aws.String(strconv.FormatInt(n, 10))}
}

// device returns a device of the instance that the container may open.
func device(path string) types.Device {
	return types.Device{HostPath: &path, Permissions: []types.DeviceCgroupPermission{types.DeviceCgroupPermissionRead, types.DeviceCgroupPermissionWrite}}
}

// contentHash returns a hash of a registration.
func contentHash(input *batch.RegisterJobDefinitionInput) (string, error) {
	content, err := plain(input)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("hash the job definition: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16]), nil
}

// plain returns a request of the SDK as JSON in AWS's shape. It leaves out what is not set, so that the text stays the
// same when a newer SDK has more fields.
func plain(request any) (any, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("print the request: %w", err)
	}
	var content any
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("print the request: %w", err)
	}
	return prune(content), nil
}

// prune removes what is null or empty from a JSON value, and gives the names of fields a small first letter.
func prune(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, inner := range v {
			if inner = prune(inner); inner != nil {
				kept[strings.ToLower(key[:1])+key[1:]] = inner
			}
		}
		if len(kept) > 0 {
			return kept
		}
		return nil
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
		if len(v) > 0 {
			return v
		}
		return nil
	case string:
		if v == "" {
			return nil
		}
	}
	return value
}

// register finds an active revision of the definition with the same content, or registers one. Revisions are never
// removed, because another manager may use them; AWS counts no revisions.
func (b *Backend) register(ctx context.Context) error {
	if b.revision != "" {
		return nil
	}
	input, err := b.Definition.Input()
	if err != nil {
		return err
	}
	found, err := b.findRevision(ctx, input)
	if err != nil {
		return err
	}
	if found == "" {
		out, err := b.Batch.RegisterJobDefinition(ctx, input)
		if err != nil {
			return b.failure("register the job definition "+b.Definition.Name, err)
		}
		found = aws.ToString(out.JobDefinitionArn)
	}
	b.revision = found
	return nil
}

// findRevision returns the ARN of the active revision with the content of input; empty for none.
func (b *Backend) findRevision(ctx context.Context, input *batch.RegisterJobDefinitionInput) (string, error) {
	pages := batch.NewDescribeJobDefinitionsPaginator(b.Batch, &batch.DescribeJobDefinitionsInput{
		JobDefinitionName: input.JobDefinitionName, Status: aws.String("ACTIVE"),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", b.failure("read the job definition "+b.Definition.Name, err)
		}
		for _, d := range page.JobDefinitions {
			if d.Parameters[contentKey] == input.Parameters[contentKey] {
				return aws.ToString(d.JobDefinitionArn), nil
			}
		}
	}
	return "", nil
}
