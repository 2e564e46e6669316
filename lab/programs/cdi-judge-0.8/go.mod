// Written by lab/programs/pin cdi-judge-0.8 0.8.1
module nodedevices/programs/cdi-judge-0.8

go 1.24

require (
	tags.cncf.io/container-device-interface v0.8.1
	tags.cncf.io/container-device-interface/specs-go v0.8.0
)

require (
	github.com/fsnotify/fsnotify v1.5.1 // indirect
	github.com/opencontainers/runtime-spec v1.1.0 // indirect
	github.com/opencontainers/runtime-tools v0.9.1-0.20221107090550-2e043c6bd626 // indirect
	github.com/syndtr/gocapability v0.0.0-20200815063812-42c35b437635 // indirect
	golang.org/x/mod v0.4.2 // indirect
	golang.org/x/sys v0.1.0 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
	sigs.k8s.io/yaml v1.3.0 // indirect
)
