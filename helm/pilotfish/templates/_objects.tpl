{{/* The labels of every object of this chart. */}}
{{- define "pilotfish.chart.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Selects the pods of one part of this release, such as the demo's. Takes (dict "root" $ "component" "demo"). */}}
{{- define "pilotfish.chart.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* A file of this chart; fails with its name if it is missing. Takes (dict "root" $ "file" NAME). */}}
{{- define "pilotfish.chart.file" -}}
{{- $text := .root.Files.Get .file }}
{{- if not $text }}
{{- fail (printf "the chart has no %s: it was packaged without it" .file) }}
{{- end }}
{{- $text }}
{{- end -}}

{{/* A pod of this chart: its fields besides the containers. Takes (dict "root" $ "values" …). */}}
{{- define "pilotfish.chart.podSpec" -}}
automountServiceAccountToken: false
# A Service with the name pilotfish would add variables to the pod that look like settings.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ include "pilotfish.terminationGracePeriodSeconds" . }}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- if and $values.spool.enabled ($values.securityContext).runAsGroup }}
securityContext:
  fsGroup: {{ $values.securityContext.runAsGroup | int }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The app of demo and test: the command of the sidecar's own image. Takes (dict "root" $ "values" … "script" …). */}}
{{- define "pilotfish.chart.app" -}}
{{- $values := include "pilotfish.values" . | fromYaml -}}
- name: app
  image: {{ include "pilotfish.image" $values }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  command: ["/bin/sh", "-c"]
  args:
    - |
      {{- .script | nindent 6 }}
  env:
    - name: TOPIC
      value: {{ (.root.Values.demo).topic | quote }}
    {{- with $values.settings.api_port }}
    - name: PILOTFISH_API_PORT
      value: {{ int . | quote }}
    {{- end }}
    {{- with $values.settings.admin_port }}
    - name: PILOTFISH_ADMIN_PORT
      value: {{ int . | quote }}
    {{- end }}
  resources:
    requests:
      cpu: 20m
      memory: 64Mi
    limits:
      memory: 128Mi
  securityContext:
    {{- include "pilotfish.securityContext" $values | nindent 4 }}
{{- end -}}
