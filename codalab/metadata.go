package codalab

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// ValueType is the type of a metadata value.
type ValueType string

// The types of metadata values, named as CodaLab's error messages name them.
const (
	TypeString ValueType = "str"
	TypeList   ValueType = "list"
	TypeInt    ValueType = "int"
	TypeFloat  ValueType = "float"
	TypeBool   ValueType = "bool"
	// Values of TypeDuration and TypeSize are texts for ParseDuration and ParseSize.
	TypeDuration ValueType = "duration"
	TypeSize     ValueType = "size"
)

// MetadataKey describes one key of a bundle's metadata (codalab/objects/metadata_util.py;
// codalab/bundles/*.py: METADATA_SPECS).
type MetadataKey struct {
	Key  string
	Type ValueType
	// The server sets generated keys. A client sends all others when it creates a bundle,
	// except optional ones.
	Generated bool
	Optional  bool
	// Default is the value that a client sends unless its user gives one.
	Default any
	// Help is one line for the user.
	Help string
}

// RequestKeys lists the keys of metadata with a run's requests, in the order of MetadataKeys.
func RequestKeys() (keys []string) {
	for _, k := range MetadataKeys(TypeRun) {
		if strings.HasPrefix(k.Key, "request_") || k.Key == "allow_failed_dependencies" || k.Key == "exclude_patterns" {
			keys = append(keys, k.Key)
		}
	}
	return keys
}

// MetadataKeys lists the keys that a bundle of this type may have, in the order in which
// commands print them, without SecretsKey. It is nil for an unknown type.
func MetadataKeys(bundleType string) []MetadataKey {
	keys := []MetadataKey{
		{Key: "name", Type: TypeString, Default: "", Help: "short name"},
		{Key: "description", Type: TypeString, Default: "", Help: "full description"},
		{Key: "tags", Type: TypeList, Default: []string{}, Help: "tags to find it by"},
		{Key: "created", Type: TypeInt, Generated: true},
		{Key: "data_size", Type: TypeInt, Generated: true},
		{Key: "failure_message", Type: TypeString, Generated: true},
		{Key: "error_traceback", Type: TypeString, Generated: true},
	}
	switch bundleType {
	case TypeDataset, TypeProgram:
		return append(keys, uploadKeys()...)
	case TypeMake:
		return append(keys, makeKeys()...)
	case TypeRun:
		return append(keys, runKeys()...)
	}
	return nil
}

func uploadKeys() []MetadataKey {
	return []MetadataKey{
		{Key: "license", Type: TypeString, Default: "", Help: "the license under which it is released"},
		{Key: "source_url", Type: TypeString, Default: "", Help: "where it came from"},
		{Key: "link_url", Type: TypeString, Optional: true, Default: "", Help: "path of data that stays where it is"},
		{Key: "link_format", Type: TypeString, Optional: true, Default: "", Help: "raw or zip"},
		{Key: "store", Type: TypeString, Optional: true, Default: "", Help: "bundle store"},
	}
}

func makeKeys() []MetadataKey {
	return []MetadataKey{
		{Key: "allow_failed_dependencies", Type: TypeBool, Default: false, Help: "make it even if a dependency failed or was killed"},
		{Key: "staged_status", Type: TypeString, Generated: true},
		{Key: "store", Type: TypeString, Optional: true, Default: "", Help: "bundle store"},
	}
}

// runKeys are a researcher's requests to the cluster, and the server's records of a run
// (codalab/bundles/run_bundle.py: METADATA_SPECS).
func runKeys() []MetadataKey {
	generated := func(kind ValueType, keys ...string) []MetadataKey {
		var list []MetadataKey
		for _, key := range keys {
			list = append(list, MetadataKey{Key: key, Type: kind, Generated: true})
		}
		return list
	}
	return slices.Concat(
		[]MetadataKey{
			{Key: "allow_failed_dependencies", Type: TypeBool, Default: false, Help: "run even if a dependency failed or was killed"},
			{Key: "request_docker_image", Type: TypeString, Default: "", Help: "Docker image to run in"},
			{Key: "request_time", Type: TypeDuration, Default: "", Help: "time limit, such as 3m, 3h or 3d"},
			{Key: "request_memory", Type: TypeSize, Default: "2g", Help: "memory limit, such as 300m or 8g"},
			{Key: "request_disk", Type: TypeSize, Default: "", Help: "disk limit, such as 2g"},
			{Key: "request_cpus", Type: TypeInt, Default: int64(1), Help: "number of CPUs"},
			{Key: "request_gpus", Type: TypeInt, Default: int64(0), Help: "number of GPUs"},
			{Key: "request_queue", Type: TypeString, Default: "", Help: "queue to run in"},
			{Key: "request_priority", Type: TypeInt, Default: int64(0), Help: "place among your own bundles: higher first, negative last"},
			{Key: "request_network", Type: TypeBool, Default: true, Help: "access to the network"},
		},
		generated(TypeFloat, "cpu_usage", "memory_usage"),
		[]MetadataKey{
			{Key: "exclude_patterns", Type: TypeList, Default: []string{}, Help: "files of the run that are not kept"},
			{Key: "store", Type: TypeString, Optional: true, Default: "", Help: "bundle store"},
		},
		generated(TypeList, "actions"),
		generated(TypeFloat, "time", "time_user", "time_system", "memory", "memory_max"),
		generated(TypeInt, "started", "last_updated"),
		generated(TypeString, "run_status", "staged_status"),
		generated(TypeFloat, "time_preparing", "time_running", "time_cleaning_up", "time_uploading_results"),
		generated(TypeString, "docker_image"),
		generated(TypeInt, "exitcode"),
		generated(TypeString, "job_handle", "remote"),
		generated(TypeList, "remote_history"),
		generated(TypeBool, "on_preemptible_worker"),
	)
}

// CheckMetadata fails if a client's metadata for a bundle of this type is invalid, with the
// message of CodaLab's own server. With whole set (creation), every key that a client must
// send is required; otherwise (an edit) a subset is enough. It converts values to the forms
// that the accessors of Metadata read.
func CheckMetadata(bundleType string, m Metadata, whole bool) error {
	known := map[string]MetadataKey{}
	for _, k := range MetadataKeys(bundleType) {
		known[k.Key] = k
	}
	if bundleType == TypeRun {
		known[SecretsKey] = MetadataKey{Key: SecretsKey, Type: TypeList, Default: []string{}}
	}
	for key, value := range m {
		spec, ok := known[key]
		if !ok {
			return fmt.Errorf("Unexpected metadata key: %s", key)
		}
		v, err := spec.check(value)
		if err != nil {
			return err
		}
		m[key] = v
	}
	if err := checkSecretNames(m.Strings(SecretsKey)); err != nil {
		return err
	}
	if !whole {
		return nil
	}
	for _, spec := range MetadataKeys(bundleType) {
		if !spec.Generated && !spec.Optional && !m.Has(spec.Key) {
			return fmt.Errorf("Missing metadata key: %s", spec.Key)
		}
	}
	return nil
}

// check converts value to the form that Metadata's accessors read.
func (k MetadataKey) check(value any) (any, error) {
	if value == nil { // an emptied field of a form
		return k.Default, nil
	}
	bad := fmt.Errorf("Metadata value for %s should be of type %s, was %s (type %s)", k.Key, k.Type, PythonStr(value), PythonType(value))
	if n, ok := value.(json.Number); ok {
		f, err := n.Float64()
		if err != nil {
			return nil, bad
		}
		value = f
	}
	switch k.Type {
	case TypeString:
		if s, ok := value.(string); ok {
			return s, nil
		}
	case TypeDuration, TypeSize:
		if s, ok := value.(string); ok {
			return s, k.checkUnit(s)
		}
	case TypeBool:
		if b, ok := value.(bool); ok {
			return b, nil
		}
	case TypeInt:
		n := Metadata{k.Key: value}.Float(k.Key)
		if _, number := value.(string); !number && value != nil && n == math.Trunc(n) {
			return int64(n), k.checkAmount(int64(n))
		}
	case TypeFloat:
		switch value.(type) {
		case float64, int64, int:
			return Metadata{k.Key: value}.Float(k.Key), nil
		}
	case TypeList:
		switch list := value.(type) {
		case []string:
			return list, nil
		case []any:
			strs := Metadata{k.Key: list}.Strings(k.Key)
			if len(strs) == len(list) {
				return strs, nil
			}
		}
	}
	return nil, bad
}

// checkAmount refuses a negative number of CPUs or GPUs. A run that asks for no CPU gets one (codalab/server/bundle_manager.py:
// _compute_request_cpus).
func (k MetadataKey) checkAmount(n int64) error {
	if n < 0 && (k.Key == "request_cpus" || k.Key == "request_gpus") {
		return fmt.Errorf("Metadata value for %s should be at least 0, was %d", k.Key, n)
	}
	return nil
}

func (k MetadataKey) checkUnit(s string) error {
	if s == "" {
		return nil
	}
	if k.Type == TypeSize {
		_, err := ParseSize(s)
		return err
	}
	_, err := ParseDuration(s)
	return err
}
