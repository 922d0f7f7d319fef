from taskgraph.__main__ import main


def test_a_plan_is_printed(tmp_path, capsys):
    file = tmp_path / "steps"
    file.write_text("# steps\napp: core ?charts\ncore:\n")
    assert main([str(file), "app"]) == 0
    assert capsys.readouterr().out == "1. core\n2. app\nskipped charts: charts does not exist\n"


def test_errors_are_printed(tmp_path, capsys):
    file = tmp_path / "steps"
    file.write_text("a: b\nb: a\n")
    assert main([str(file)]) == 1
    assert "circular dependency: a -> b -> a" in capsys.readouterr().err


def test_skipped_steps_are_printed_once(tmp_path, capsys):
    file = tmp_path / "steps"
    file.write_text("app: ?charts ?themes\ncharts: cairo\nthemes: ?charts\n")
    assert main([str(file), "app"]) == 0
    assert capsys.readouterr().out == "1. themes\n2. app\nskipped charts: cairo does not exist\n"
