// SPDX-License-Identifier: Apache-2.0

// cdi-judge reads CDI specs as container runtimes do, by the reference library. Arguments are files and directories.
// It prints one JSON line for each file; "error" is empty if the library accepts the file. A line without a path says
// which version of CDI the library knows.
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
	Path  string `json:"path"`
	Error string `json:"error"`
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
			verdicts = []verdict{{path, fmt.Sprint("panic: ", crash)}}
		}
	}()
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		_, err := cdi.ReadSpec(path, 0)
		return []verdict{{path, text(err)}}
	}
	cache, _ := cdi.NewCache(cdi.WithSpecDirs(path), cdi.WithAutoRefresh(false))
	found := cache.GetErrors()
	entries, err := os.ReadDir(path)
	if err != nil {
		return []verdict{{path, text(err)}}
	}
	for _, entry := range entries {
		file := filepath.Join(path, entry.Name())
		if ending := filepath.Ext(file); ending == ".json" || ending == ".yaml" {
			verdicts = append(verdicts, verdict{file, text(errors.Join(found[file]...))})
		}
	}
	return verdicts
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
