"""The messages of MCP, member by member and revision by revision.

Written from the specification's schema pages, apart from the tables of the package: two tables
must agree for a test to pass. A type is a line of members:

    name            a string that may be there
    name!           … that must be there
    name:TYPE       str, int, num, bool, null, any, obj (any object), id (string or integer), the
                    name of a type or of an enumeration, [TYPE], {TYPE} (an object of any names)
    name:A|B        one of several
    name:="x|y"     one of these words
    name@06         since a revision;  name@11-11 from … to;  name@-11 up to
    +               other members may be there too

`integer` where the schema files say so although ``schema.ts`` says ``number`` is read as
``number``: fractions are legal there.
"""

from __future__ import annotations

# Short names of the revisions, in order.
REVISIONS = {
    "24": "2024-11-05",
    "03": "2025-03-26",
    "06": "2025-06-18",
    "11": "2025-11-25",
    "26": "2026-07-28",
}
ORDER = list(REVISIONS)
CODES = {version: code for code, version in REVISIONS.items()}
LEVELS = "debug|info|notice|warning|error|critical|alert|emergency"
STATUSES = "working|input_required|completed|failed|cancelled"
META = "io.modelcontextprotocol/"
# Members that several types have.
ASKED = "_meta:RequestMeta@-11 _meta!:RequestMeta@26"
AGAIN = f"inputResponses:{{InputResponse}}@26 requestState@26 {ASKED}"
CACHED = 'ttlMs!:int@26 cacheScope!:="public|private"@26 _meta:ResultMeta'
LISTED = f"nextCursor resultType!@26 {CACHED}"
STATE = f'taskId! status!:="{STATUSES}" statusMessage createdAt! lastUpdatedAt!'
TASK = f"{STATE} ttl!:num|null pollInterval:num"
EXT_TASK = f"{STATE} ttlMs!:num|null pollIntervalMs:num"

TYPES: dict[str, str] = {
    # -- _meta -----------------------------------------------------------------------------------
    "RequestMeta": f"progressToken:id {META}protocolVersion!@26"
    f" {META}clientCapabilities!:ClientCapabilities@26 {META}clientInfo:Implementation@26"
    f' {META}logLevel:="{LEVELS}"@26 +',
    "NotificationMeta": f"{META}subscriptionId:id@26 +",
    "ResultMeta": f"{META}serverInfo:Implementation@26 {META}subscriptionId:id@26 +",
    "ListenMeta": f"{META}serverInfo:Implementation {META}subscriptionId!:id +",
    # -- who speaks, and what it can -------------------------------------------------------------
    "Implementation": "name! version! title@06 description@11 websiteUrl@11 icons:[Icon]@11",
    "ClientCapabilities": "experimental:{obj} roots:RootsCapability sampling:SamplingCapability"
    " elicitation:ElicitationCapability@06 tasks:ClientTasks@11-11 extensions:{obj}@26",
    "RootsCapability": "listChanged:bool@-11",
    "SamplingCapability": "context:obj@11 tools:obj@11",
    "ElicitationCapability": "form:obj@11 url:obj@11",
    "ClientTasks": "cancel:obj list:obj requests:ClientTaskRequests",
    "ClientTaskRequests": "elicitation:ElicitationTask sampling:SamplingTask",
    "ElicitationTask": "create:obj",
    "SamplingTask": "createMessage:obj",
    "ServerCapabilities": "experimental:{obj} logging:obj prompts:Listed resources:Subscribed"
    " tools:Listed completions:obj@03 tasks:ServerTasks@11-11 extensions:{obj}@26",
    "Listed": "listChanged:bool",
    "Subscribed": "listChanged:bool subscribe:bool",
    "ServerTasks": "cancel:obj list:obj requests:ServerTaskRequests",
    "ServerTaskRequests": "tools:ToolsTask",
    "ToolsTask": "call:obj",
    # -- things with names -----------------------------------------------------------------------
    "Icon": 'src! mimeType sizes:[str] theme:="light|dark"',
    "Annotations": "audience:[Role] priority:num lastModified@06",
    "Tool": "name! description inputSchema!:ObjectSchema annotations:ToolAnnotations@03 title@06"
    " outputSchema:ObjectSchema@06-11 outputSchema:obj@26 _meta:obj@06 icons:[Icon]@11"
    " execution:ToolExecution@11-11",
    "ObjectSchema": 'type!:="object" properties:{any} required:[str] +',
    "ToolAnnotations": "title readOnlyHint:bool destructiveHint:bool idempotentHint:bool"
    " openWorldHint:bool",
    "ToolExecution": 'taskSupport:="forbidden|optional|required"',
    "Prompt": "name! description arguments:[PromptArgument] title@06 _meta:obj@06 icons:[Icon]@11",
    "PromptArgument": "name! description required:bool title@06",
    "Resource": "uri! name! description mimeType size:num annotations:Annotations title@06"
    " _meta:obj@06 icons:[Icon]@11",
    "ResourceTemplate": "uriTemplate! name! description mimeType annotations:Annotations title@06"
    " _meta:obj@06 icons:[Icon]@11",
    "Root": "uri! name _meta:obj@06",
    # -- content ---------------------------------------------------------------------------------
    "Text": 'type!:="text" text! annotations:Annotations _meta:obj@06',
    "Image": 'type!:="image" data! mimeType! annotations:Annotations _meta:obj@06',
    "Audio": 'type!:="audio" data! mimeType! annotations:Annotations _meta:obj@06',
    "Embedded": 'type!:="resource" resource!:Contents annotations:Annotations _meta:obj@06',
    "Link": 'type!:="resource_link" uri! name! description mimeType size:num title'
    " annotations:Annotations _meta:obj icons:[Icon]@11",
    "ToolUse": 'type!:="tool_use" id! name! input!:obj _meta:obj',
    "ToolResult": 'type!:="tool_result" toolUseId! content!:[Block] isError:bool'
    " structuredContent:obj@-11 structuredContent:any@26 _meta:obj",
    "Contents": "uri! mimeType text blob _meta:obj@06",
    "PromptMessage": "role!:Role content!:Block",
    "SamplingMessage": "role!:Role content!:SamplingBlock@-06"
    " content!:SamplingBlock|[SamplingBlock]@11 _meta:obj@11",
    # -- tasks -----------------------------------------------------------------------------------
    "TaskWish": "ttl:num",
    "Task": TASK,
    "TaskResult": f"{TASK} _meta:obj",
    "TaskStatus": f"{TASK} _meta:NotificationMeta",
    "ExtTask": f'{EXT_TASK} resultType!:="complete" inputRequests:{{InputRequest}} result:obj'
    " error:ErrorObject _meta:ResultMeta",
    "ExtTaskMade": f'{EXT_TASK} resultType!:="task" _meta:ResultMeta',
    "ExtTaskTold": f"{EXT_TASK} inputRequests:{{InputRequest}} result:obj error:ErrorObject"
    " _meta:NotificationMeta",
    # -- parameters of requests ------------------------------------------------------------------
    "NoParams": f"{ASKED} +",
    "Initialize": "protocolVersion! capabilities!:ClientCapabilities clientInfo!:Implementation"
    " _meta:RequestMeta",
    "Page": f"cursor {ASKED}",
    "CallTool": f"name! arguments:obj task:TaskWish@11-11 {AGAIN}",
    "GetPrompt": f"name! arguments:{{str}} {AGAIN}",
    "ReadResource": f"uri! {AGAIN}",
    "Uri": "uri! _meta:RequestMeta",
    "Complete": f"ref!:Reference argument!:CompleteArgument context:CompleteContext@06 {ASKED}",
    "CompleteArgument": "name! value!",
    "CompleteContext": "arguments:{str}",
    "PromptReference": 'type!:="ref/prompt" name! title@06',
    "ResourceReference": 'type!:="ref/resource" uri!',
    "SetLevel": f'level!:="{LEVELS}" _meta:RequestMeta',
    "Listen": "notifications!:Filter _meta!:RequestMeta",
    "Filter": "toolsListChanged:bool promptsListChanged:bool resourcesListChanged:bool"
    " resourceSubscriptions:[str] taskIds:[str]",
    "TaskId": f"taskId! {ASKED}",
    "UpdateTask": "taskId! inputResponses!:{InputResponse} _meta!:RequestMeta",
    "CreateMessage": "messages!:[SamplingMessage] maxTokens!:num modelPreferences:Preferences"
    ' systemPrompt includeContext:="none|thisServer|allServers" temperature:num'
    " stopSequences:[str] metadata:obj tools:[Tool]@11 toolChoice:ToolChoice@11"
    " task:TaskWish@11-11 _meta:RequestMeta@-11",
    "Preferences": "hints:[Hint] costPriority:num speedPriority:num intelligencePriority:num",
    "Hint": "name",
    "ToolChoice": 'mode:="auto|required|none"',
    "ListRoots": "_meta:RequestMeta@-11 _meta:obj@26",
    "ElicitForm": 'message! requestedSchema!:Form mode:="form"@11 task:TaskWish@11-11'
    " _meta:RequestMeta@-11",
    "ElicitUrl": 'message! url! mode!:="url" elicitationId!@-11 task:TaskWish@11-11'
    " _meta:RequestMeta@-11",
    "Form": 'type!:="object" properties!:{Primitive} required:[str] $schema@11',
    "FormString": 'type!:="string" title description minLength:num maxLength:num'
    ' format:="email|uri|date|date-time" enum:[str] enumNames:[str] default@11'
    " oneOf:[FormChoice]@11",
    "FormChoice": "const! title!",
    "FormNumber": 'type!:="number|integer" title description minimum:num maximum:num'
    " default:num@11",
    "FormBoolean": 'type!:="boolean" title description default:bool',
    "FormMany": 'type!:="array" title description minItems:num maxItems:num items!:FormItems'
    " default:[str]",
    "FormItems": 'type:="string" enum:[str] anyOf:[FormChoice]',
    # -- results ---------------------------------------------------------------------------------
    "Empty": "resultType!@26 _meta:ResultMeta",
    "Initialized": "protocolVersion! capabilities!:ServerCapabilities serverInfo!:Implementation"
    " instructions _meta:obj",
    "Discovered": "supportedVersions!:[str] capabilities!:ServerCapabilities instructions"
    ' resultType!:="complete" ttlMs!:int cacheScope!:="public|private" _meta:ResultMeta',
    "Tools": f"tools!:[Tool] {LISTED}",
    "Prompts": f"prompts!:[Prompt] {LISTED}",
    "Resources": f"resources!:[Resource] {LISTED}",
    "Templates": f"resourceTemplates!:[ResourceTemplate] {LISTED}",
    "Called": "content!:[Block] isError:bool structuredContent:obj@06-11"
    ' structuredContent:any@26 resultType!:="complete"@26 _meta:ResultMeta',
    "TaskMade": "task!:Task _meta:obj",
    "InputRequired": 'resultType!:="input_required" inputRequests:{InputRequest} requestState'
    " _meta:ResultMeta",
    "Prompted": 'messages!:[PromptMessage] description resultType!:="complete"@26 _meta:ResultMeta',
    "Read": f'contents!:[Contents] resultType!:="complete"@26 {CACHED}',
    "Completed": "completion!:Completion resultType!@26 _meta:ResultMeta",
    "Completion": "values!:[str] total:num hasMore:bool",
    "Listened": 'resultType!:="complete" _meta!:ListenMeta',
    "TaskPage": "tasks!:[Task] nextCursor _meta:obj",
    "Payload": "_meta:obj +",
    "Sampled": "role!:Role model! stopReason content!:SamplingBlock@-06"
    " content!:SamplingBlock|[SamplingBlock]@11 _meta:obj",
    "Roots": "roots!:[Root] _meta:obj@-11",
    "Elicited": 'action!:="accept|decline|cancel" content:{Entry} _meta:obj@-11',
    # -- inside input_required -------------------------------------------------------------------
    "SampleRequest": 'method!:="sampling/createMessage" params!:CreateMessage',
    "RootsRequest": 'method!:="roots/list" params:ListRoots',
    "ElicitRequest": 'method!:="elicitation/create" params!:Elicit',
    # -- notifications ---------------------------------------------------------------------------
    "Note": "_meta:NotificationMeta",
    "Cancelled": "requestId!:id@-06 requestId:id@11-11 requestId!:id@26 reason"
    " _meta:NotificationMeta",
    "Progress": "progressToken!:id progress!:num total:num message@03 _meta:NotificationMeta",
    "Log": f'level!:="{LEVELS}" data!:any logger _meta:NotificationMeta',
    "Updated": "uri! _meta:NotificationMeta",
    "Acknowledged": "notifications!:Filter _meta!:NotificationMeta",
    "ElicitationDone": "elicitationId! _meta:obj",
    # -- errors ----------------------------------------------------------------------------------
    "ErrorObject": "code!:int message! data:any",
    "Unsupported": "supported!:[str] requested!",
    "Missing": "requiredCapabilities!:ClientCapabilities",
    "UrlsRequired": "elicitations!:[ElicitUrl] +",
}

# One of several types, told apart by a member: what its values mean, and in which revisions.
CHOICES: dict[str, tuple[str, dict[str, str]]] = {
    "Block": (
        "type",
        {
            "text": "Text",
            "image": "Image",
            "resource": "Embedded",
            "audio": "Audio@03",
            "resource_link": "Link@06",
        },
    ),
    "SamplingBlock": (
        "type",
        {
            "text": "Text",
            "image": "Image",
            "audio": "Audio@03",
            "tool_use": "ToolUse@11",
            "tool_result": "ToolResult@11",
        },
    ),
    "Reference": ("type", {"ref/prompt": "PromptReference", "ref/resource": "ResourceReference"}),
    "Primitive": (
        "type",
        {
            "string": "FormString",
            "number": "FormNumber",
            "integer": "FormNumber",
            "boolean": "FormBoolean",
            "array": "FormMany@11",
        },
    ),
    "InputRequest": (
        "method",
        {
            "sampling/createMessage": "SampleRequest",
            "roots/list": "RootsRequest",
            "elicitation/create": "ElicitRequest",
        },
    ),
    "Elicit": ("mode", {"url": "ElicitUrl@11", "form": "ElicitForm", "": "ElicitForm"}),
}
# Told apart by what they hold.
HOLDING: dict[str, list[tuple[str, str]]] = {
    "InputResponse": [("action", "Elicited"), ("roots", "Roots"), ("model", "Sampled")],
}
UNIONS: dict[str, str] = {
    "Role": '="user|assistant"',
    "Entry": "str|num|bool|[str]",
}

# method: since when (as in TYPES), parameters, result; a result may be one of several
Row = tuple[str, str, str]
CLIENT_REQUESTS: dict[str, list[Row]] = {
    "initialize": [("-11", "Initialize", "Initialized")],
    "ping": [("-11", "NoParams", "Empty")],
    "server/discover": [("26", "NoParams", "Discovered")],
    "tools/list": [("24", "Page", "Tools")],
    "tools/call": [("24", "CallTool", "CallOutcome")],
    "prompts/list": [("24", "Page", "Prompts")],
    "prompts/get": [("24", "GetPrompt", "PromptOutcome")],
    "resources/list": [("24", "Page", "Resources")],
    "resources/templates/list": [("24", "Page", "Templates")],
    "resources/read": [("24", "ReadResource", "ReadOutcome")],
    "resources/subscribe": [("-11", "Uri", "Empty")],
    "resources/unsubscribe": [("-11", "Uri", "Empty")],
    "subscriptions/listen": [("26", "Listen", "Listened")],
    "completion/complete": [("24", "Complete", "Completed")],
    "logging/setLevel": [("-11", "SetLevel", "Empty")],
    "tasks/get": [("11-11", "TaskId", "TaskResult"), ("26", "TaskId", "ExtTask")],
    "tasks/result": [("11-11", "TaskId", "Payload")],
    "tasks/list": [("11-11", "Page", "TaskPage")],
    "tasks/cancel": [("11-11", "TaskId", "TaskResult"), ("26", "TaskId", "Empty")],
    "tasks/update": [("26", "UpdateTask", "Empty")],
}
SERVER_REQUESTS: dict[str, list[Row]] = {
    "ping": [("-11", "NoParams", "Empty")],
    "sampling/createMessage": [("-11", "CreateMessage", "SampleOutcome")],
    "roots/list": [("-11", "ListRoots", "Roots")],
    "elicitation/create": [("06-11", "Elicit", "ElicitOutcome")],
    **{
        method: [row for row in rows if row[0] == "11-11"]
        for method, rows in CLIENT_REQUESTS.items()
        if method.startswith("tasks/") and method != "tasks/update"
    },
}
CLIENT_NOTIFICATIONS: dict[str, list[Row]] = {
    "notifications/initialized": [("-11", "Note", "")],
    "notifications/cancelled": [("24", "Cancelled", "")],
    "notifications/progress": [("-11", "Progress", "")],
    "notifications/roots/list_changed": [("-11", "Note", "")],
    "notifications/tasks/status": [("11-11", "TaskStatus", "")],
}
SERVER_NOTIFICATIONS: dict[str, list[Row]] = {
    "notifications/cancelled": [("24", "Cancelled", "")],
    "notifications/progress": [("24", "Progress", "")],
    "notifications/message": [("24", "Log", "")],
    "notifications/tools/list_changed": [("24", "Note", "")],
    "notifications/prompts/list_changed": [("24", "Note", "")],
    "notifications/resources/list_changed": [("24", "Note", "")],
    "notifications/resources/updated": [("24", "Updated", "")],
    "notifications/elicitation/complete": [("11-11", "ElicitationDone", "")],
    "notifications/tasks/status": [("11-11", "TaskStatus", "")],
    "notifications/subscriptions/acknowledged": [("26", "Acknowledged", "")],
    "notifications/tasks": [("26", "ExtTaskTold", "")],
}
# Results of several kinds: those with a resultType of another kind, and tasks of 2025-11-25.
OUTCOMES: dict[str, str] = {
    "CallOutcome": "Called",
    "PromptOutcome": "Prompted",
    "ReadOutcome": "Read",
    "SampleOutcome": "Sampled",
    "ElicitOutcome": "Elicited",
}

# code: the member `data`, and the revisions that have it
ERRORS: dict[int, tuple[str, str]] = {
    -32022: ("Unsupported", "24"),
    -32021: ("Missing", "26"),
    -32042: ("UrlsRequired", "11-11"),
}
