{{/*
The container, as an item of a list. Native and legacy differ only in restartPolicy, in postStart and in the
drain delay. `pilotfish.initContainer` prints it if native, `pilotfish.container` if legacy, and otherwise
nothing, so a chart may include both.
*/}}

{{/* For `initContainers:`. The native sidecar; nothing with nativeSidecar: false. */}}
{{- define "pilotfish.initContainer" -}}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- if $values.nativeSidecar }}
{{- include "pilotfish.sidecar" . }}
{{- end }}
{{- end -}}

{{/* For `containers:`, before the app's own. Only with nativeSidecar: false. */}}
{{- define "pilotfish.container" -}}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- if not $values.nativeSidecar }}
{{- include "pilotfish.sidecar" . }}
{{- end }}
{{- end -}}

{{- define "pilotfish.sidecar" -}}
{{- $values := include "pilotfish.values" . | fromYaml -}}
{{- if not (or $values.bootstrapServers (index $values.kafka "bootstrap.servers") $values.configMapName) }}
{{- fail "pilotfish.bootstrapServers: give the brokers as HOST:PORT, separated by commas, such as kafka-bootstrap.kafka:9092" }}
{{- end -}}
- name: pilotfish
  image: {{ include "pilotfish.image" $values }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args: ["serve"]
  {{- if $values.nativeSidecar }}
  restartPolicy: Always
  {{- end }}
  env:
    {{- include "pilotfish.env" . | nindent 4 }}
  ports:
    - name: pf-admin
      containerPort: {{ include "pilotfish.adminPort" $values }}
      protocol: TCP
  {{- if not $values.nativeSidecar }}
  # Undocumented, but many rely on it: kubelet starts the next container when this has ended.
  lifecycle:
    postStart:
      exec:
        command: ["pilotfish", "wait", "--timeout", "{{ include "pilotfish.startupSeconds" $values }}"]
  {{- end }}
  # Probes connect to the pod's address. None sets a host: 127.0.0.1 would be the node.
  startupProbe:
    httpGet:
      path: /startupz
      port: pf-admin
    periodSeconds: 1
    failureThreshold: {{ include "pilotfish.startupSeconds" $values }}
  livenessProbe:
    httpGet:
      path: /livez
      port: pf-admin
    periodSeconds: 10
    timeoutSeconds: {{ include "pilotfish.livenessSeconds" $values }}
    failureThreshold: 3
  {{- if $values.readiness.enabled }}
  readinessProbe:
    httpGet:
      path: /readyz
      port: pf-admin
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  {{- end }}
  {{- with $values.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "pilotfish.securityContext" $values | nindent 4 }}
  volumeMounts:
    {{- include "pilotfish.volumeMounts" . | nindent 4 }}
{{- end -}}

{{- define "pilotfish.image" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- $version := (include "pilotfish.defaults" . | fromYaml).image.tag }}
{{- printf "%s:%s" .image.repository (.image.tag | default $version) }}
{{- end }}
{{- end -}}

{{- define "pilotfish.adminPort" -}}
{{- .settings.admin_port | default 9464 | int }}
{{- end -}}

{{/* The time limit of the start: longer than the wait for metadata, after which the sidecar has started. */}}
{{- define "pilotfish.startupSeconds" -}}
{{- $wait := ternary .settings.startup_max_wait_ms 30000 (hasKey .settings "startup_max_wait_ms") | int }}
{{- max 60 (add 30 (div (add $wait 999) 1000)) }}
{{- end -}}

{{/* The time limit of /livez: longer than the sidecar waits for a turn of its loops. */}}
{{- define "pilotfish.livenessSeconds" -}}
{{- $turn := ternary .settings.liveness_timeout_ms 4000 (hasKey .settings "liveness_timeout_ms") | int }}
{{- max 5 (add 1 (div (add $turn 999) 1000)) }}
{{- end -}}

{{/* As Pod Security `restricted` requires. A null key is omitted, as OpenShift requires for runAsUser. */}}
{{- define "pilotfish.securityContext" -}}
{{- $context := dict }}
{{- range $name, $value := .securityContext }}
{{- if not (kindIs "invalid" $value) }}
{{- $context = set $context $name $value }}
{{- end }}
{{- end }}
{{- toYaml $context }}
{{- end -}}
