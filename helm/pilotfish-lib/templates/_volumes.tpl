{{/*
Volumes and their mounts. Config and secrets are mounted as directories, never by subPath, which is never
updated. Kubelet makes the folders of secrets inside that of the config.
*/}}
{{- define "pilotfish.volumes" -}}
{{- $values := include "pilotfish.values" . | fromYaml -}}
- name: pilotfish-tmp
  emptyDir:
    medium: Memory
    sizeLimit: 16Mi
{{- if include "pilotfish.hasConfig" . }}
- name: pilotfish-config
  configMap:
    name: {{ include "pilotfish.configMapName" . | quote }}
{{- end }}
{{- range $values.secrets }}
- name: pilotfish-secret-{{ .name }}
  secret:
    secretName: {{ quote .secretName }}
    {{- with .items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
{{- if $values.spool.enabled }}
- name: pilotfish-spool
  {{- toYaml $values.spool.volume | nindent 2 }}
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pilotfish.volumeMounts" -}}
{{- $values := include "pilotfish.values" . | fromYaml -}}
- name: pilotfish-tmp
  mountPath: /tmp
{{- if include "pilotfish.hasConfig" . }}
- name: pilotfish-config
  mountPath: /etc/pilotfish
  readOnly: true
{{- end }}
{{- range $values.secrets }}
- name: pilotfish-secret-{{ .name }}
  mountPath: /etc/pilotfish/secrets/{{ .name }}
  readOnly: true
{{- end }}
{{- if $values.spool.enabled }}
- name: pilotfish-spool
  mountPath: /var/lib/pilotfish/spool
{{- end }}
{{- with $values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
