from hloopt.report.study import Study


def study_page(study: Study) -> str:
    return ""
