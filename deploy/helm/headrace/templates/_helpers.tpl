{{- define "headrace.name" -}}
{{- printf "%s-headrace" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "headrace.labels" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headrace.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "headrace.pod" -}}
serviceAccountName: {{ include "headrace.name" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "headrace.container" -}}
image: {{ include "headrace.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy | default "IfNotPresent" }}
workingDir: /project
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: ["ALL"]}
{{- end -}}

{{- define "headrace.env" -}}
- name: HEADRACE_BROKER__BOOTSTRAP
  value: {{ .Values.kafka.bootstrap | quote }}
- name: HEADRACE_BROKER__SECURITY_PROTOCOL
  value: {{ .Values.kafka.securityProtocol | quote }}
- name: HEADRACE_BROKER__REPLICATION
  value: {{ .Values.kafka.replication | quote }}
- name: HEADRACE_BROKER__MIN_INSYNC_REPLICAS
  value: {{ .Values.kafka.minInsyncReplicas | quote }}
{{- if hasPrefix "SASL" .Values.kafka.securityProtocol }}
- name: HEADRACE_BROKER__SASL_MECHANISM
  value: {{ required "kafka.saslMechanism is needed with SASL" .Values.kafka.saslMechanism | quote }}
- name: HEADRACE_BROKER__SASL_USERNAME
  value: {{ required "kafka.username is needed with SASL" .Values.kafka.username | quote }}
- name: HEADRACE_BROKER__SASL_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ required "kafka.secret is needed with SASL" .Values.kafka.secret }}, key: password}
{{- end }}
{{- if hasSuffix "SSL" .Values.kafka.securityProtocol }}
- name: HEADRACE_BROKER__TLS_CA
  value: /etc/headrace/kafka/ca.crt
{{- end }}
{{- range $section, $keys := .Values.settings }}
{{- range $key, $value := $keys }}
- name: HEADRACE_{{ upper $section }}__{{ upper $key }}
  value: {{ toString $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "headrace.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: project, mountPath: /project, readOnly: true}
{{- if hasSuffix "SSL" .Values.kafka.securityProtocol }}
- {name: kafka-ca, mountPath: /etc/headrace/kafka, readOnly: true}
{{- end }}
{{- end -}}

{{- define "headrace.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 2Gi}
- name: project
{{- if .Values.project.configMap }}
  configMap: {name: {{ .Values.project.configMap }}}
{{- else }}
  emptyDir: {sizeLimit: 1Mi}
{{- end }}
{{- if hasSuffix "SSL" .Values.kafka.securityProtocol }}
- name: kafka-ca
  secret:
    secretName: {{ required "kafka.secret is needed with TLS" .Values.kafka.secret }}
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end -}}
