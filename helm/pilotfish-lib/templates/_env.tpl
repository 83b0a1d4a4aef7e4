{{/*
The sidecar's variables. Those beat pilotfish.toml, so here is only what must hold in a pod. No secret: those
are files.
*/}}
{{- define "pilotfish.env" -}}
{{- $values := include "pilotfish.values" . | fromYaml -}}
- name: PILOTFISH_ADMIN_HOST
  value: 0.0.0.0
{{- if include "pilotfish.hasConfig" . }}
- name: PILOTFISH_CONFIG
  value: /etc/pilotfish/pilotfish.toml
{{- end }}
{{- with $values.bootstrapServers }}
- name: PILOTFISH_KAFKA_BOOTSTRAP_SERVERS
  value: {{ quote . }}
{{- end }}
{{- with $values.settings.admin_port }}
# `pilotfish wait` reads it, too.
- name: PILOTFISH_ADMIN_PORT
  value: {{ . | int | quote }}
{{- end }}
{{- if not $values.nativeSidecar }}
# App and sidecar get SIGTERM in the same moment: this one serves on while the app drains.
- name: PILOTFISH_DRAIN_DELAY_MS
  value: {{ include "pilotfish.drainDelayMs" $values | quote }}
{{- end }}
{{- if $values.spool.enabled }}
# Below the mount, where a disk has its lost+found, and where the folder can be its owner's alone.
- name: PILOTFISH_SPOOL_FOLDER
  value: /var/lib/pilotfish/spool/log
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A native sidecar gets SIGTERM after the app has ended; one of the older form has to outlast it by itself. */}}
{{- define "pilotfish.drainDelayMs" -}}
{{- $unless := ternary 0 (mul 1000 (int .appGraceSeconds)) .nativeSidecar }}
{{- ternary .settings.drain_delay_ms $unless (hasKey .settings "drain_delay_ms") | int }}
{{- end -}}
