package kubernetes

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// placeholder stands for a login.
const placeholder = "a token of cl-server for this worker"

// Preview returns the pod and the Secret of a pilot as YAML. The Secret has a text in place of its login.
func (b *Backend) Preview(name string) (string, error) {
	l := login{token: placeholder}
	pod := b.pod(name, l)
	var text strings.Builder
	for i, object := range []any{pod, secret(pod, l)} {
		data, err := yaml.Marshal(object)
		if err != nil {
			return "", fmt.Errorf("print a worker's pod: %w", err)
		}
		if i > 0 {
			text.WriteString("---\n")
		}
		text.Write(data)
	}
	return text.String(), nil
}
