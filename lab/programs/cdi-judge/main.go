// SPDX-License-Identifier: Apache-2.0

// cdi-judge reads CDI specs as container runtimes do, by the reference library. Arguments are files and directories.
// It prints one JSON line for each file. "error" is empty if the library accepts the file; then "devices" has each
// device by its qualified name, and "common" what the file has for all of them. In a directory, only devices that the
// library resolves count. A line without a path says which version of CDI the library knows.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"
)

type verdict struct {
	Path    string                  `json:"path"`
	Error   string                  `json:"error"`
	Devices map[string]specs.Device `json:"devices,omitempty"`
	Common  *common                 `json:"common,omitempty"`
}

type common struct {
	Annotations map[string]string    `json:"annotations,omitempty"`
	Edits       specs.ContainerEdits `json:"containerEdits"`
}

func main() {
	out := json.NewEncoder(os.Stdout)
	for _, path := range os.Args[1:] {
		for _, one := range judge(path) {
			out.Encode(one)
		}
	}
	out.Encode(map[string]string{"version": specs.CurrentVersion})
}

// judge returns one verdict, or one for each file of a directory. A panic of the library crashes a runtime.
func judge(path string) (verdicts []verdict) {
	defer func() {
		if crash := recover(); crash != nil {
			verdicts = []verdict{{Path: path, Error: fmt.Sprint("panic: ", crash)}}
		}
	}()
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		spec, err := cdi.ReadSpec(path, 0)
		one := verdict{Path: path, Error: text(err)}
		if err == nil {
			for _, device := range spec.Devices {
				one.add(spec.GetDevice(device.Name))
			}
		}
		return []verdict{one}
	}
	cache, _ := cdi.NewCache(cdi.WithSpecDirs(path), cdi.WithAutoRefresh(false))
	found := cache.GetErrors()
	entries, err := os.ReadDir(path)
	if err != nil {
		return []verdict{{Path: path, Error: text(err)}}
	}
	for _, entry := range entries {
		file := filepath.Join(path, entry.Name())
		if ending := filepath.Ext(file); ending == ".json" || ending == ".yaml" {
			one := verdict{Path: file, Error: text(errors.Join(found[file]...))}
			for _, name := range cache.ListDevices() {
				if device := cache.GetDevice(name); device.GetSpec().GetPath() == file {
					one.add(device)
				}
			}
			verdicts = append(verdicts, one)
		}
	}
	return verdicts
}

func (one *verdict) add(device *cdi.Device) {
	spec := device.GetSpec()
	if one.Devices == nil {
		one.Devices = map[string]specs.Device{}
		one.Common = &common{spec.Annotations, spec.ContainerEdits}
	}
	one.Devices[device.GetQualifiedName()] = *device.Device
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
