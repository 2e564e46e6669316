{{/* The name of the release's objects. */}}
{{- define "node-device-plugin.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $both | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of a profile's objects. Arguments: root, key. */}}
{{- define "node-device-plugin.name" -}}
{{- include "node-device-plugin.fullname" .root }}{{ if ne .key "default" }}-{{ .key }}{{ end -}}
{{- end -}}

{{- define "node-device-plugin.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Labels of a profile's pods. Argument: the name of the profile's objects. */}}
{{- define "node-device-plugin.selectorLabels" -}}
app.kubernetes.io/name: node-device-plugin
app.kubernetes.io/instance: {{ . }}
{{- end -}}

{{/* Metadata of a profile's objects. Arguments: root, name, labels (optional). */}}
{{- define "node-device-plugin.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "node-device-plugin.selectorLabels" .name | nindent 2 }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* A profile's configuration as JSON. In a pod, the HTTP address has only a port. Arguments: root, profile. */}}
{{- define "node-device-plugin.config" -}}
{{- $config := dict "cdi_owner" "plugin" "http_address" ":9819" -}}
{{- range list .root.Values.settings (.profile.config | default dict) -}}
{{- range $key, $value := . }}{{ $_ := set $config $key $value }}{{ end -}}
{{- end -}}
{{- $_ := set $config "http_address" (printf ":%s" (regexFind "[0-9]+$" $config.http_address)) -}}
{{- with $config.dra -}}
{{- $_ := set $config "dra" (pick . "driver") -}}
{{- end -}}
{{- toPrettyJson $config -}}
{{- end -}}

{{/* The names of a profile's resources with api: dra, as JSON. Arguments: root, profile. */}}
{{- define "node-device-plugin.draResources" -}}
{{- $names := .profile.draResources | default list -}}
{{- if not .profile.existingConfigMap -}}
{{- $config := include "node-device-plugin.config" . | fromJson -}}
{{- range $config.resources -}}
{{- if eq "dra" (.api | default $config.api | default "") }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Refuses resources with api: dra that draResources lacks. helm template has no cluster. Arguments: root, key, profile. */}}
{{- define "node-device-plugin.requireDraResources" -}}
{{- $map := dict -}}
{{- with .profile.existingConfigMap }}{{ $map = lookup "v1" "ConfigMap" $.root.Release.Namespace . }}{{ end -}}
{{- range $text := $map.data -}}
{{- $config := fromYaml $text -}}
{{- range $config.resources -}}
{{- if and (eq "dra" (.api | default $config.api | default "")) (not (has .name ($.profile.draResources | default list))) -}}
{{- printf "profiles.%s.draResources: add %s, which has api: dra in ConfigMap %s" $.key .name $.profile.existingConfigMap | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of a profile's DRA driver; empty without a resource that needs the driver. Arguments: root, profile. */}}
{{- define "node-device-plugin.driver" -}}
{{- if include "node-device-plugin.draResources" . | fromJsonArray -}}
{{- $config := include "node-device-plugin.config" . | fromJson -}}
{{- dig "driver" "" ($config.dra | default dict) | default "nodedevices.kubernetes" -}}
{{- end -}}
{{- end -}}

{{/* Whether a profile's pods call the API server. Arguments: root, profile. */}}
{{- define "node-device-plugin.hasToken" -}}
{{- with .root.Values }}{{ if or .startupTaint .nodeCondition }}true{{ end }}{{ end -}}
{{- include "node-device-plugin.driver" . -}}
{{- end -}}

{{/* Each resource with api: dra: its driver, and the profiles that have it. */}}
{{- define "node-device-plugin.classes" -}}
{{- $classes := dict -}}
{{- range $key, $profile := .Values.profiles -}}
{{- $place := dict "root" $ "key" $key "profile" $profile -}}
{{- $driver := include "node-device-plugin.driver" $place -}}
{{- $user := printf "%s/%s" $.Release.Namespace (include "node-device-plugin.name" $place) -}}
{{- range $resource := include "node-device-plugin.draResources" $place | fromJsonArray -}}
{{- $former := get $classes $resource | default (dict "driver" $driver "users" list) -}}
{{- if ne $driver $former.driver -}}
{{- printf "profiles.%s: dra.driver is %s, but another profile has %s: %s has one DeviceClass, and so one driver" $key $driver $former.driver $resource | fail -}}
{{- end -}}
{{- $_ := set $classes $resource (dict "driver" $driver "users" (append $former.users $user)) -}}
{{- end -}}
{{- end -}}
{{- toJson $classes -}}
{{- end -}}

{{/* A text of this length at most with a hash of a name, as in declaration/names.py. Arguments: name, text, room. */}}
{{- define "node-device-plugin.hashed" -}}
{{- $readable := regexReplaceAll "-+$" (trunc (int (sub .room 18)) .text) "" | default "x" -}}
{{- printf "%s--%s" $readable (sha256sum .name | trunc 16) -}}
{{- end -}}

{{- define "node-device-plugin.hashedLabel" -}}
{{- $text := regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trimPrefix "-" -}}
{{- include "node-device-plugin.hashed" (dict "name" . "text" $text "room" 63) -}}
{{- end -}}

{{/* The name of a resource's DeviceClass, as in declaration/names.py. */}}
{{- define "node-device-plugin.className" -}}
{{- $parts := splitn "/" 2 . -}}
{{- $label := $parts._1 -}}
{{- if or (not (regexMatch "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" $label)) (regexMatch "--[0-9a-f]{16}$" $label) -}}
{{- $label = include "node-device-plugin.hashedLabel" $label -}}
{{- end -}}
{{- $name := printf "%s.%s" $label $parts._0 -}}
{{- if gt (len $name) 253 }}{{ include "node-device-plugin.hashedLabel" $name }}{{ else }}{{ $name }}{{ end -}}
{{- end -}}

{{/* A resource's name as the text of a device's attribute, as in declaration/names.py. */}}
{{- define "node-device-plugin.attributeText" -}}
{{- if gt (len .) 64 }}{{ include "node-device-plugin.hashed" (dict "name" . "text" . "room" 64) }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/*
How a node's new pod serves before the old one ends: true, claims, or empty. A kubelet is at most three minors older than
its server, and every kubelet with the API v1 of DRA accepts two sockets of a driver. Arguments: root, profile.
*/}}
{{- define "node-device-plugin.overlap" -}}
{{- $overlap := .root.Values.overlap -}}
{{- $isNew := semverCompare ">=1.40.0-0" .root.Capabilities.KubeVersion.Version -}}
{{- $claims := include "node-device-plugin.draResources" . | fromJsonArray | len -}}
{{- $all := dig "config" "resources" list .profile | len -}}
{{- if or (eq $overlap "always") (and (eq $overlap "auto") $isNew) -}}
true
{{- else if and (eq $overlap "auto") $claims (eq $claims $all) (not .profile.existingConfigMap) -}}
claims
{{- end -}}
{{- end -}}

{{/* The host's directories in a pod, each path once. Arguments: config, driver, devices (a list of paths). */}}
{{- define "node-device-plugin.directories" -}}
{{- $plugins := .config.kubelet_device_plugin_dir | default "/var/lib/kubelet/device-plugins" -}}
{{- $root := .config.kubelet_root_dir | default "/var/lib/kubelet" -}}
{{- $dynamic := .config.dynamic_cdi_dir | default "/var/run/cdi" -}}
{{- $static := ternary .config.cdi_spec_dirs (list "/etc/cdi" "/var/run/cdi") (kindIs "slice" .config.cdi_spec_dirs) -}}
{{- $all := list
  (dict "name" "device-plugins" "path" $plugins "type" "Directory")
  (dict "name" "sockets" "path" (printf "%s/node-device-plugin" $plugins) "type" "DirectoryOrCreate" "writable" true) -}}
{{- if or .driver (eq .config.registration "plugins_registry") -}}
{{- $registry := printf "%s/plugins_registry" $root -}}
{{- $all = append $all (dict "name" "plugins-registry" "path" $registry "type" "Directory" "writable" true) -}}
{{- end -}}
{{- $all = append $all (dict "name" "pod-resources" "path" (printf "%s/pod-resources" $root) "type" "Directory") -}}
{{- range $number, $path := without $static $dynamic -}}
{{- $name := ternary (printf "cdi-static-%d" $number) "cdi-static" (gt $number 0) -}}
{{- $all = append $all (dict "name" $name "path" $path "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- $all = append $all (dict "name" "cdi-dynamic" "path" $dynamic "type" "DirectoryOrCreate" "writable" true) -}}
{{- range $number, $path := .devices -}}
{{- $name := ternary (printf "devices-%d" $number) "devices" (gt $number 0) -}}
{{- /* In /dev and /sys, nobody can create a directory. */ -}}
{{- $type := ternary "Directory" "DirectoryOrCreate" (or (eq $path "/dev") (hasPrefix "/sys/" $path)) -}}
{{- $all = append $all (dict "name" $name "path" $path "type" $type) -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $all -}}
{{- if not (hasKey $seen .path) }}
- {{ toJson . }}
{{- $_ := set $seen .path true -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses patterns in directories that the pods do not see. Arguments: key, config, devices (a list of paths). */}}
{{- define "node-device-plugin.requireDirectories" -}}
{{- range $resource := .config.resources -}}
{{- $needed := dig "discover" "paths" list $resource -}}
{{- if dig "discover" "udev" list $resource }}{{ $needed = append $needed "/run/udev/data/" }}{{ end -}}
{{- range $path := $needed -}}
{{- $isSeen := false -}}
{{- range $.devices }}{{ if hasPrefix (printf "%s/" .) $path }}{{ $isSeen = true }}{{ end }}{{ end -}}
{{- if not $isSeen -}}
{{- printf "profiles.%s.deviceDirectories: add the directory of %s, which %s needs" $.key $path $resource.name | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The labels of a profile's nodes. Arguments: root, key, name, profile. */}}
{{- define "node-device-plugin.nodeSelector" -}}
{{- $label := .root.Values.profileLabel -}}
{{- if not $label -}}
{{- .profile.nodeSelector | default (dict "nodedevices.kubernetes/device-plugin" .name) | toYaml -}}
{{- else if eq .key .root.Values.defaultProfile -}}
{{- .profile.nodeSelector | default (dict "kubernetes.io/os" "linux") | toYaml -}}
{{- else -}}
{{- merge (dict $label .key) (.profile.nodeSelector | default dict) | toYaml -}}
{{- end -}}
{{- end -}}

{{/*
The terms of a node affinity: those of the profile. A node that a play labelled for another DaemonSet is left out, and
the default profile leaves out the nodes of other profiles. Arguments: root, key, name, profile.
*/}}
{{- define "node-device-plugin.nodeSelectorTerms" -}}
{{- $label := .root.Values.profileLabel -}}
{{- $terms := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list (.profile.affinity | default dict) | default (list dict) -}}
{{- $own := list -}}
{{- if or .profile.nodeSelector $label }}{{ $own = append $own (list "nodedevices.kubernetes/device-plugin" .name) }}{{ end -}}
{{- if and $label (eq .key .root.Values.defaultProfile) }}{{ $own = append $own (list $label .key) }}{{ end -}}
{{- range $pair := $own -}}
{{- $free := dict "key" (first $pair) "operator" "DoesNotExist" -}}
{{- $ours := dict "key" (first $pair) "operator" "In" "values" (list (last $pair)) -}}
{{- $either := list -}}
{{- range $term := $terms -}}
{{- range $one := list $free $ours -}}
{{- $expressions := append ($term.matchExpressions | default list) $one -}}
{{- $either = append $either (merge (dict "matchExpressions" $expressions) $term) -}}
{{- end -}}
{{- end -}}
{{- $terms = $either -}}
{{- end -}}
{{- range $terms }}
- {{ toJson . }}
{{- end -}}
{{- end -}}
