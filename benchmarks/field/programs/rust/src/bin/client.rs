//! A client with rmcp: calls `echo` of the server that a command starts.
//!
//! client CALLS WARMUP IN_FLIGHT COMMAND [ARGUMENT…]
//!
//! Prints a line of JSON: calls, wrong answers, seconds, processor seconds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use rmcp::{
    RoleClient, ServiceExt, model::CallToolRequestParams, service::Peer,
    transport::TokioChildProcess,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn processor_seconds() -> f64 {
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut used) };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(used.ru_utime) + seconds(used.ru_stime)
}

/// Makes calls until `last` is reached; returns the number of wrong answers.
async fn work(peer: Peer<RoleClient>, next: Arc<AtomicUsize>, last: usize) -> usize {
    let mut wrong = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= last {
            return wrong;
        }
        let text = format!("{number:012}:{:x<51}", "");
        let mut arguments = serde_json::Map::new();
        arguments.insert("text".into(), text.clone().into());
        let request = CallToolRequestParams::new("echo").with_arguments(arguments);
        let right = match peer.call_tool(request).await {
            Ok(result) => {
                result.is_error != Some(true)
                    && result.content.first().and_then(|block| block.as_text())
                        .is_some_and(|found| found.text == text)
            }
            Err(_) => false,
        };
        wrong += usize::from(!right);
    }
}

async fn phase(peer: &Peer<RoleClient>, from: usize, calls: usize, in_flight: usize) -> usize {
    let next = Arc::new(AtomicUsize::new(from));
    let tasks: Vec<_> = (0..in_flight)
        .map(|_| tokio::spawn(work(peer.clone(), next.clone(), from + calls)))
        .collect();
    let mut wrong = 0;
    for task in tasks {
        wrong += task.await.unwrap_or(calls);
    }
    wrong
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let calls: usize = arguments[1].parse()?;
    let warmup: usize = arguments[2].parse()?;
    let in_flight: usize = arguments[3].parse()?;
    let mut command = tokio::process::Command::new(&arguments[4]);
    command.args(&arguments[5..]);
    let service = ().serve(TokioChildProcess::new(command)?).await?;
    let mut wrong = phase(service.peer(), 0, warmup, in_flight).await;
    let (processor, began) = (processor_seconds(), Instant::now());
    wrong += phase(service.peer(), warmup, calls, in_flight).await;
    let (seconds, processor) = (began.elapsed().as_secs_f64(), processor_seconds() - processor);
    println!(
        "{{\"calls\": {calls}, \"wrong\": {wrong}, \"seconds\": {seconds:.6}, \
         \"cpu_seconds\": {processor:.6}}}"
    );
    service.cancel().await?;
    Ok(())
}
